"""GLM-4.1V and GLM-4.5V: images of any size, a gated projector after a strided convolution merges 2 x 2.

Sources: transformers 5.24 models/glm4v, glm4v_moe; vLLM 0.19 models/glm4_1v.py, which cuts the tower's linear layers.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH, read_tower, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Norm, Role, layer_norm, linear, whole

_VISUAL = "model.visual"
_SIZES = {
    "depth": 24,
    "hidden_size": 1536,
    "num_heads": 12,
    "patch_size": 14,
    "image_size": 336,
    "out_hidden_size": 4096,
}
# preprocessor_config.json as published with GLM-4.1V and GLM-4.5V: size.longest_edge 9,633,792 = 2 x 6,144 x 28 x 28,
# where an image counts as a pair of frames (transformers glm4v smart_resize has the same default)
_MAX_FRAME_PIXELS = 9_633_792
# Checkpoints state rope_parameters.mrope_section [8, 12, 12]
_MROPE = (8, 12, 12)


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a glm4v or glm4v_moe config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    sparse = raw.text("model_type", default="glm4v") == "glm4v_moe"
    text = text_spec(raw, text_type="glm4v_moe_text" if sparse else "glm4v_text", mrope=_MROPE)
    vision = read_vision_section(raw)
    return multimodal(raw, text, (_tower(vision),), vision)


def _tower(vision: RawConfig) -> Stack:
    # out_hidden_size is both the projector's width and the inner width of the tower's MLPs; intermediate_size is the
    # projector's (transformers Glm4vVisionBlock, Glm4vVisionPatchMerger)
    sizes = read_tower(
        vision, _SIZES, depth="depth", heads="num_heads", intermediate="out_hidden_size", channels="in_channels"
    )
    hidden, out = sizes.hidden_size, sizes.intermediate_size
    inner = vision.integer("intermediate_size", default=13696, minimum=1, maximum=LARGEST_WIDTH)
    merge = vision.integer("spatial_merge_size", default=2, minimum=1, maximum=16)
    temporal = vision.integer("temporal_patch_size", default=2, minimum=1, maximum=16)
    merger = f"{_VISUAL}.merger"
    tensors = (
        parameter(f"{_VISUAL}.embeddings.position_embedding.weight", sizes.patches, hidden),
        *convolution(
            f"{_VISUAL}.patch_embed.proj",
            hidden,
            sizes.channels,
            temporal,
            sizes.patch_size,
            sizes.patch_size,
            bias=True,
        ),
        *Norm(f"{_VISUAL}.post_conv_layernorm", hidden).tensors(),
        *Norm(f"{_VISUAL}.post_layernorm", hidden).tensors(),
        *convolution(f"{_VISUAL}.downsample", out, hidden, merge, merge, bias=True, role=Role.PROJECTOR),
        *linear(f"{merger}.proj", out, out, Role.PROJECTOR, column=whole(out)),
        *layer_norm(f"{merger}.post_projection_norm", out).tensors(),
        *linear(f"{merger}.gate_proj", inner, out, Role.PROJECTOR, column=whole(inner)),
        *linear(f"{merger}.up_proj", inner, out, Role.PROJECTOR, column=whole(inner)),
        *linear(f"{merger}.down_proj", out, inner, Role.PROJECTOR, row=whole(inner)),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=out,
        activation=vision.text("hidden_act", default="silu"),
        norms=(Norm("norm1", hidden), Norm("norm2", hidden)),
        attention_names=AttentionNames(block="attn", output="proj", fused="qkv"),
        mlp_names=MlpNames(),
        gated=True,
        fused=True,
        attention_bias=vision.flag("attention_bias", default=False),
        output_bias=False,
        mlp_bias=False,
        rotary=True,
    )
    unit = sizes.patch_size * merge
    tokens = _MAX_FRAME_PIXELS // temporal // unit**2
    patches = tokens * merge**2
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_VISUAL}.blocks",
        tokens_per_item=tokens,
        patches_per_item=patches,
        input_elements_per_item=patches * sizes.channels * temporal * sizes.patch_size**2,
        detail=f"longest_edge {_MAX_FRAME_PIXELS:,} pixels over {temporal} frames (published preprocessor_config.json):"
        f" {patches:,} patches of {sizes.patch_size}, merged {merge} x {merge} into {tokens:,} tokens",
    )
