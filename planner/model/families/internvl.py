"""InternVL 3 and 3.5 (the -hf checkpoints): InternViT, patches folded 2 x 2, two linear layers, any decoder.

Sources: transformers 5.24 models/internvl and got_ocr2/image_processing_got_ocr2.py. vLLM 0.19 loads these as InternS1
(models/interns1.py, interns1_vit.py): its attention is whole on every GPU, the MLP is cut, the projector is whole.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import Tower, read_tower, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Norm, layer_norm

_TOWER = "model.vision_tower"
_PROJECTOR = "model.multi_modal_projector"
_SIZES = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "patch_size": 14,
    "image_size": 448,
}
# GotOcr2ImageProcessor.max_patches, with crop_to_patches on in InternVLProcessor; one more tile shows the whole image
_MAX_TILES = 12


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an internvl config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    text = text_spec(raw, text_type="qwen2", tie_default=True)
    vision = read_vision_section(raw)
    tower = _intern_vit(vision)
    ratio = raw.number("downsample_ratio", default=0.5)
    if not 0 < ratio <= 1 or (fold := round(1 / ratio)) * ratio != 1:
        raise raw.error("downsample_ratio", f"is {ratio}; expected 1 over a whole number")
    merged = tower.stack.hidden_size * fold**2
    tokens = tower.sizes.patches // fold**2
    tiles = _MAX_TILES + 1
    stack = replace(
        tower.stack,
        tensors=(
            *tower.stack.tensors,
            *layer_norm(f"{_PROJECTOR}.layer_norm", merged).tensors(),
            *projector(_PROJECTOR, (merged, text.hidden_size, text.hidden_size), sharded=False),
        ),
        tokens_per_item=tiles * tokens,
        patches_per_item=tiles * tower.positions,
        input_elements_per_item=tiles * tower.sizes.pixels,
        detail=f"at most {_MAX_TILES} tiles of {tower.sizes.image_size} x {tower.sizes.image_size} and an overview,"
        f" {tokens} tokens each (transformers InternVLProcessor, max_patches 12)",
    )
    return multimodal(raw, text, (stack,), vision)


def _intern_vit(vision: RawConfig) -> Tower:
    sizes = read_tower(vision, _SIZES)
    hidden = sizes.hidden_size
    kind = vision.text("norm_type", default="layer_norm")
    if kind not in ("layer_norm", "rms_norm"):
        raise refuse(vision, "norm_type", f"{kind[:40]!r} is not understood; expected layer_norm or rms_norm")

    def norm(name: str) -> Norm:
        return layer_norm(name, hidden) if kind == "layer_norm" else Norm(name, hidden)

    embeddings = f"{_TOWER}.embeddings"
    tensors = (
        parameter(f"{embeddings}.cls_token", 1, 1, hidden),
        *convolution(
            f"{embeddings}.patch_embeddings.projection",
            hidden,
            sizes.channels,
            sizes.patch_size,
            sizes.patch_size,
            bias=True,
        ),
    )
    if vision.flag("use_absolute_position_embeddings", default=True):
        tensors += (parameter(f"{embeddings}.position_embeddings", 1, sizes.patches + 1, hidden),)
    if vision.flag("use_mask_token", default=False):
        tensors += (parameter(f"{embeddings}.mask_token", 1, 1, hidden),)
    if not vision.flag("use_mean_pooling", default=True):
        tensors += layer_norm(f"{_TOWER}.layernorm", hidden).tensors()
    head_norms = vision.flag("use_qk_norm", default=False)
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu"),
        norms=(norm("layernorm_before"), norm("layernorm_after")),
        attention_names=AttentionNames(block="attention", output="projection_layer"),
        attention_bias=vision.flag("attention_bias", default=False),
        output_bias=True,
        query_norm=Norm("q_norm", hidden) if head_norms else None,
        key_norm=Norm("k_norm", hidden) if head_norms else None,
        attention_replicated=True,
        extra=(parameter("lambda_1", hidden), parameter("lambda_2", hidden)),
    )
    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_TOWER}.encoder.layer",
    )
    return Tower(stack, sizes, sizes.patches + 1)
