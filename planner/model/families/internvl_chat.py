"""InternVL in its own format (internvl_chat): InternViT with q, k, v in one matrix, patches folded 2 x 2, any decoder.

The same models as `internvl` (the -hf checkpoints), whose count they share.

Source: OpenGVLab/InternVL2-8B `modeling_intern_vit.py`, `modeling_internvl_chat.py`, `configuration_intern_vit.py`
(remote code); vLLM 0.19.1 models/internvl.py, intern_vit.py.
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

_SIZES = {
    "hidden_size": 3200,
    "num_hidden_layers": 48,
    "num_attention_heads": 25,
    "intermediate_size": 12800,
    "patch_size": 14,
    "image_size": 224,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an internvl_chat config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a decoder that is not understood.
    """
    decoder = raw.section("llm_config")
    if decoder is None:
        raise raw.error("llm_config", "is missing; it describes the decoder")
    # the wrapper's own class is named ...Model and has a head all the same
    outer = {key: value for key, value in raw.mapping().items() if key not in ("architectures", "llm_config")}
    tied = decoder.flag("tie_word_embeddings", default=False)
    inner = {**decoder.mapping(), "tie_word_embeddings": tied}
    outer["tie_word_embeddings"] = tied
    text = text_spec(
        RawConfig({**outer, "text_config": inner}, path=raw.path),
        text_type="llama",
        prefix="language_model.model",
        head="language_model",
    )
    raw.has("template", "max_dynamic_patch", "min_dynamic_patch", "hidden_size", "select_layer", "ps_version")
    vision = read_vision_section(raw)
    tower = _intern_vit(vision, raw)
    ratio = raw.number("downsample_ratio", default=0.5)
    if not 0 < ratio <= 1 or (fold := round(1 / ratio)) * ratio != 1:
        raise raw.error("downsample_ratio", f"is {ratio}; expected 1 over a whole number")
    merged, tokens = tower.stack.hidden_size * fold**2, tower.sizes.patches // fold**2
    tiles = raw.integer("max_dynamic_patch", default=12, minimum=1, maximum=1 << 10)
    tiles += 1 if raw.flag("use_thumbnail", default=True) and tiles > 1 else 0
    stack = replace(
        tower.stack,
        tensors=(
            *tower.stack.tensors,
            *layer_norm("mlp1.0", merged).tensors(),
            *projector("mlp1", (merged, text.hidden_size, text.hidden_size), sharded=False, names=("1", "3")),
        ),
        tokens_per_item=tiles * tokens,
        patches_per_item=tiles * tower.positions,
        input_elements_per_item=tiles * tower.sizes.pixels,
        detail=f"at most {tiles} tiles of {tower.sizes.image_size} x {tower.sizes.image_size}, overview included,"
        f" {tokens} tokens each (max_dynamic_patch)",
    )
    return multimodal(raw, text, (stack,), vision)


def _intern_vit(vision: RawConfig, raw: RawConfig) -> Tower:
    sizes = read_tower(vision, _SIZES)
    forced = raw.integer("force_image_size", default=sizes.image_size, minimum=sizes.patch_size, maximum=1 << 16)
    hidden, prefix = sizes.hidden_size, "vision_model"
    kind = vision.text("norm_type", default="rms_norm")
    if kind not in ("layer_norm", "rms_norm"):
        raise refuse(vision, "norm_type", f"{kind[:40]!r} is not understood; expected layer_norm or rms_norm")
    vision.has("qk_normalization", "num_experts", "moe_config")

    def norm(name: str) -> Norm:
        return layer_norm(name, hidden) if kind == "layer_norm" else Norm(name, hidden)

    head_norms = vision.flag("qk_normalization", default=True)
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu"),
        norms=(norm("norm1"), norm("norm2")),
        attention_names=AttentionNames(block="attn", fused="qkv", output="proj"),
        fused=True,
        attention_bias=vision.flag("qkv_bias", default=False),
        output_bias=True,
        query_norm=Norm("q_norm", hidden) if head_norms else None,
        key_norm=Norm("k_norm", hidden) if head_norms else None,
        extra=(parameter("ls1", hidden), parameter("ls2", hidden)),
    )
    embeddings = f"{prefix}.embeddings"
    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=(
            parameter(f"{embeddings}.class_embedding", 1, 1, hidden),
            *convolution(
                f"{embeddings}.patch_embedding", hidden, sizes.channels, sizes.patch_size, sizes.patch_size, bias=True
            ),
            parameter(f"{embeddings}.position_embedding", 1, sizes.patches + 1, hidden),
        ),
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{prefix}.encoder.layers",
    )
    sizes = replace(sizes, image_size=forced)
    return Tower(stack, sizes, sizes.patches + 1)
