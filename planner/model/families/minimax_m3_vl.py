"""MiniMax-M3 with images: a CLIP-like tower without a class token, two projections, then 2 x 2 patches merged.

Source: transformers 5.24 models/minimax_m3_vl (configuration_, modeling_, image_processing_). vLLM 0.19 lacks it.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH, read_tower, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.tower import convolution, encoder_layer, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import layer_norm

_VISION = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "intermediate_size": 5120,
    "patch_size": 14,
}
_TOWER = "model.vision_tower"
_PROJECTOR = "model.multi_modal_projector"
# MiniMaxM3VLImageProcessor: size.longest_edge, pixels of one image
_MAX_PIXELS = 451_584


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a minimax_m3_vl config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    text = text_spec(raw, text_type="minimax_m3_vl_text")
    vision = read_vision_section(raw)
    vision.has("image_size", "projection_dim", "vocab_size", "vision_segment_max_frames")
    raw.has("num_reward_heads", "image_grid_pinpoints", "img_token_compression_config")
    width = raw.integer("projector_hidden_size", default=6144, minimum=1, maximum=LARGEST_WIDTH)
    return multimodal(raw, text, (_tower(vision, text.hidden_size, width),), vision)


def _tower(vision: RawConfig, text_size: int, width: int) -> Stack:
    sizes = read_tower(vision, _VISION)
    hidden = sizes.hidden_size
    folding = vision.section("img_token_compression_config") or vision
    merge = folding.integer("spatial_merge_size", default=2, minimum=1, maximum=16)
    temporal = folding.integer("temporal_patch_size", default=2, minimum=1, maximum=16)
    kernel = (temporal, sizes.patch_size, sizes.patch_size)
    tensors = (
        *convolution(f"{_TOWER}.embeddings.proj", hidden, sizes.channels, *kernel),
        *layer_norm(f"{_TOWER}.pre_layrnorm", hidden).tensors(),
        *projector(_PROJECTOR, (hidden, width, text_size)),
        *projector(_PROJECTOR, (text_size * merge**2, width, text_size), names=("merge_linear_1", "merge_linear_2")),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu"),
        norms=(layer_norm("layer_norm1", hidden), layer_norm("layer_norm2", hidden)),
        attention_names=AttentionNames(output="out_proj"),
        rotary=True,
    )
    tokens = _MAX_PIXELS // (sizes.patch_size * merge) ** 2
    patches = tokens * merge**2
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_TOWER}.layers",
        tokens_per_item=tokens,
        patches_per_item=patches,
        input_elements_per_item=patches * sizes.channels * temporal * sizes.patch_size**2,
        detail=f"an image is scaled to at most {_MAX_PIXELS:,} pixels: {patches:,} patches of {sizes.patch_size},"
        f" merged {merge} x {merge} into {tokens} tokens (transformers MiniMaxM3VLImageProcessor)",
    )
