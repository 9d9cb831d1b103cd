"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and the multimodal Qwen3.5 / 3.6: images of any size, patches merged 2 x 2.

qwen2_vl         LayerNorm, plain MLP, no learned positions
qwen2_5_vl       RMSNorm, gated MLP with biases, attention inside windows in most blocks
qwen3_vl(_moe)   learned positions, and mergers that feed three decoder layers besides the input (deepstack)
qwen3_5(_moe)    the same tower without deepstack

Sources: transformers 5.24 modeling_ and configuration_ of each, qwen2_vl/image_processing_qwen2_vl.py; the pixel limits
are those of the preprocessor_config.json published with the models. vLLM 0.19 models/qwen2_vl.py, qwen2_5_vl.py,
qwen3_vl.py cut the tower's linear layers over tensor parallel ranks.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH, TowerSizes, read_tower, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter, projector
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Norm, Tensor, layer_norm

_VISUAL = "model.visual"
_NAMES = AttentionNames(block="attn", output="proj", fused="qkv")
_APART = AttentionNames(block="attn", output="proj")
_QWEN2_VL = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "patch_size": 14}
_QWEN2_5_VL = {"depth": 32, "hidden_size": 3584, "num_heads": 16, "patch_size": 14, "intermediate_size": 3420}
_QWEN3_VL = {"depth": 27, "hidden_size": 1152, "num_heads": 16, "patch_size": 16, "intermediate_size": 4304}
_OUTPUT_SIZE = 3584
# preprocessor_config.json as published: Qwen2-VL and Qwen2.5-VL max_pixels 12,845,056 = 16,384 x 28 x 28; Qwen3-VL and
# Qwen3.5 size.longest_edge 16,777,216 = 16,384 x 32 x 32. (The bare Qwen2VLImageProcessor class says 1,280 x 28 x 28.)
_MAX_PIXELS = {14: 12_845_056, 16: 16_777_216}
# The wrapper classes' M-RoPE split, for configs that leave it out
_MROPE = {
    "qwen2_vl_text": (16, 24, 24),
    "qwen2_5_vl_text": (16, 24, 24),
    "qwen3_5_text": (11, 11, 10),
    "qwen3_5_moe_text": (11, 11, 10),
}
_TEXT_TYPES = {
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a Qwen vision-language config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    model_type = raw.text("model_type", default="qwen2_vl")
    text_type = _TEXT_TYPES.get(model_type, "qwen2_vl_text")
    vision = read_vision_section(raw)
    vision.has("spatial_patch_size", "tokens_per_second", "in_chans")  # the first is patch_size again
    text = text_spec(raw, text_type=text_type, mrope=_MROPE.get(text_type, (24, 20, 20)))
    towers = {"qwen2_vl": _qwen2_vl, "qwen2_5_vl": qwen2_5_vl_tower}
    stack = towers.get(model_type, qwen3_vl_tower)(vision)
    return multimodal(raw, text, (stack,), vision)


def _stack(vision: RawConfig, sizes: TowerSizes, tensors: tuple[Tensor, ...], layer: Layer, merge: int) -> Stack:
    """The tower with what one image takes: whole merged squares up to the published limit of pixels."""
    temporal = _temporal(vision)
    pixels = _MAX_PIXELS.get(sizes.patch_size, _MAX_PIXELS[16])
    unit = sizes.patch_size * merge
    tokens = pixels // unit**2
    patches = tokens * merge**2
    return Stack(
        name="vision",
        hidden_size=sizes.hidden_size,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_VISUAL}.blocks",
        tokens_per_item=tokens,
        patches_per_item=patches,
        input_elements_per_item=patches * sizes.channels * temporal * sizes.patch_size**2,
        detail=f"the largest image, {pixels:,} pixels (limit in the published preprocessor_config.json), is {patches:,}"
        f" patches of {sizes.patch_size} x {sizes.patch_size}, merged {merge} x {merge} into {tokens:,} tokens",
    )


def _merge(vision: RawConfig) -> int:
    return vision.integer("spatial_merge_size", default=2, minimum=1, maximum=16)


def _temporal(vision: RawConfig) -> int:
    return vision.integer("temporal_patch_size", default=2, minimum=1, maximum=16)


def _patch_embed(vision: RawConfig, sizes: TowerSizes, *, bias: bool) -> tuple[Tensor, ...]:
    """A 3D convolution over pairs of frames; an image is its own pair."""
    kernel = (_temporal(vision), sizes.patch_size, sizes.patch_size)
    return convolution(f"{_VISUAL}.patch_embed.proj", sizes.hidden_size, sizes.channels, *kernel, bias=bias)


def _qwen2_vl(vision: RawConfig) -> Stack:
    sizes = read_tower(vision, _QWEN2_VL, hidden="embed_dim", depth="depth", heads="num_heads", channels="in_channels")
    hidden, merge = sizes.hidden_size, _merge(vision)
    merged = hidden * merge**2
    out = vision.integer("hidden_size", default=_OUTPUT_SIZE, minimum=1, maximum=LARGEST_WIDTH)
    ratio = vision.number("mlp_ratio", default=4)
    if not 0 < ratio <= 64:
        raise vision.error("mlp_ratio", f"is {ratio}; expected above 0 and at most 64")
    tensors = (
        *_patch_embed(vision, sizes, bias=False),
        *layer_norm(f"{_VISUAL}.merger.ln_q", hidden).tensors(),
        *projector(f"{_VISUAL}.merger", (merged, merged, out), names=("mlp.0", "mlp.2")),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=int(hidden * ratio),
        activation=vision.text("hidden_act", default="quick_gelu"),
        norms=(layer_norm("norm1", hidden), layer_norm("norm2", hidden)),
        attention_names=_NAMES,
        fused=True,
        rotary=True,
    )
    return _stack(vision, sizes, tensors, layer, merge)


def qwen2_5_vl_tower(vision: RawConfig, *, fused: bool = True) -> Stack:
    """Qwen2.5-VL's image tower; `fused`: query, key and value are stored as one matrix."""
    sizes = read_tower(vision, _QWEN2_5_VL, depth="depth", heads="num_heads", channels="in_channels")
    hidden, merge = sizes.hidden_size, _merge(vision)
    merged = hidden * merge**2
    out = vision.integer("out_hidden_size", default=_OUTPUT_SIZE, minimum=1, maximum=LARGEST_WIDTH)
    vision.has("window_size", "fullatt_block_indexes")  # where attention looks, not what is stored
    tensors = (
        *_patch_embed(vision, sizes, bias=False),
        *Norm(f"{_VISUAL}.merger.ln_q", hidden).tensors(),
        *projector(f"{_VISUAL}.merger", (merged, merged, out), names=("mlp.0", "mlp.2")),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="silu"),
        norms=(Norm("norm1", hidden), Norm("norm2", hidden)),
        attention_names=_NAMES if fused else _APART,
        mlp_names=MlpNames(),
        gated=True,
        fused=fused,
        rotary=True,
    )
    return _stack(vision, sizes, tensors, layer, merge)


def qwen3_vl_tower(vision: RawConfig) -> Stack:
    """Qwen3-VL's image tower."""
    sizes = read_tower(vision, _QWEN3_VL, depth="depth", heads="num_heads", channels="in_channels")
    hidden, merge = sizes.hidden_size, _merge(vision)
    merged = hidden * merge**2
    out = vision.integer("out_hidden_size", default=_OUTPUT_SIZE, minimum=1, maximum=LARGEST_WIDTH)
    positions = vision.integer("num_position_embeddings", default=2304, minimum=1, maximum=1 << 24)
    tensors = (
        *_patch_embed(vision, sizes, bias=True),
        parameter(f"{_VISUAL}.pos_embed.weight", positions, hidden),
        *layer_norm(f"{_VISUAL}.merger.norm", hidden).tensors(),
        *projector(f"{_VISUAL}.merger", (merged, merged, out), names=("linear_fc1", "linear_fc2")),
    )
    for index in range(len(_deepstack(vision))):
        name = f"{_VISUAL}.deepstack_merger_list.{index}"
        tensors += layer_norm(f"{name}.norm", merged).tensors()
        tensors += projector(name, (merged, merged, out), names=("linear_fc1", "linear_fc2"))
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu_pytorch_tanh"),
        norms=(layer_norm("norm1", hidden), layer_norm("norm2", hidden)),
        attention_names=_NAMES,
        mlp_names=MlpNames(up="linear_fc1", down="linear_fc2"),
        fused=True,
        rotary=True,
    )
    stack = _stack(vision, sizes, tensors, layer, merge)
    return replace(stack, output_widths=1 + len(_deepstack(vision)))


def _deepstack(vision: RawConfig) -> list[int]:
    """The blocks whose output feeds early decoder layers; Qwen3.5's tower has none."""
    kind = vision.text("model_type", default="qwen3_vl")
    indexes = vision.integers("deepstack_visual_indexes")
    if kind.startswith("qwen3_5"):
        return []
    if indexes is None:
        return [8, 16, 24]
    if len(indexes) > 64:
        raise vision.error("deepstack_visual_indexes", f"has {len(indexes)} entries; expected at most 64")
    return indexes
