"""Phi-3 and Phi-3.5 Vision: CLIP ViT-L/14 at 336 x 336 in tiles, patches folded 2 x 2, a Phi-3 decoder.

transformers has no class for it; the layout is that of the published modeling_phi3_v.py, whose total for
Phi-3.5-vision-instruct is 4,146,621,440 parameters. vLLM 0.19 models/phi3v.py: tower cut, projector whole.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.nested import multimodal, renamed
from planner.model.families.phi3 import build as build_phi3
from planner.model.families.vision import clip
from planner.model.kinds.tower import parameter, projector
from planner.model.spec import ModelSpec
from planner.model.tensor import Role

_EMBED = "model.vision_embed_tokens"
_CLIP_L_336 = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "patch_size": 14,
    "image_size": 336,
}
_FOLD = 4
# num_crops of the processor: 16 is what the model card recommends for one image, the most it was trained for
_MAX_TILES = 16


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a phi3_v config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: another image processor or projector than the published models'.
    """
    values = {key: value for key, value in raw.mapping().items() if key not in ("img_processor", "embd_layer")}
    text = renamed(build_phi3(RawConfig({**values, "model_type": "phi3"}, path=raw.path)), prefix="model")
    for section, key, only in (
        ("img_processor", "name", "clip_vision_model"),
        ("img_processor", "model_name", "openai/clip-vit-large-patch14-336"),
        ("embd_layer", "projection_cls", "mlp"),
        ("embd_layer", "use_hd_transform", True),
        ("embd_layer", "with_learnable_separator", True),
    ):
        reader = raw.section(section)
        value = reader.raw(key) if reader is not None else None
        if value is not None and value != only:
            raise refuse(raw, section, f"has {key} {str(value)[:40]!r}; only {only!r} is understood")
    tower = clip(RawConfig(_CLIP_L_336, path=raw.path), f"{_EMBED}.img_processor.vision_model")
    sizes, folded = tower.sizes, tower.stack.hidden_size * _FOLD
    across = sizes.image_size // sizes.patch_size // 2
    tokens = (_MAX_TILES + 1) * across**2 + 1 + (_MAX_TILES + 1) * across
    stack = replace(
        tower.stack,
        tensors=(
            *tower.stack.tensors,
            *projector(
                f"{_EMBED}.img_projection",
                (folded, text.hidden_size, text.hidden_size),
                sharded=False,
                names=("0", "2"),
            ),
            parameter(f"{_EMBED}.glb_GN", 1, 1, folded, role=Role.PROJECTOR),
            parameter(f"{_EMBED}.sub_GN", 1, 1, 1, folded, role=Role.PROJECTOR),
        ),
        tokens_per_item=tokens,
        patches_per_item=(_MAX_TILES + 1) * tower.positions,
        input_elements_per_item=(_MAX_TILES + 1) * sizes.pixels,
        detail=f"num_crops {_MAX_TILES} in one column and an overview, {across**2} tokens each, {across} ends of row"
        " each and a separator (processing_phi3_v.py as published)",
    )
    return multimodal(raw, text, (stack,))
