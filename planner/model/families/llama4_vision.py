"""Llama 4 with images: tiles of 336 x 336, patches folded 2 x 2 by a two-layer adapter, one projection.

Sources: transformers 5.24 models/llama4 (modeling_, configuration_, image_processing_). vLLM 0.19
models/mllama4.py cuts the tower's linear layers over tensor parallel ranks.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH, read_tower, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.tower import encoder_layer, parameter
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Role, layer_norm, linear, whole

_VISION = {
    "hidden_size": 768,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "intermediate_size": 5632,
    "patch_size": 14,
    "image_size": 448,
}
# Llama4ImageProcessor.max_patches: tiles of one image; one more shows the whole image
_MAX_TILES = 16
_MODEL = "vision_model"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a llama4 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    text = text_spec(raw, text_type="llama4_text", prefix="language_model.model", head="language_model")
    vision = read_vision_section(raw)
    return multimodal(raw, text, (_tower(vision, text.hidden_size),), vision)


def _tower(vision: RawConfig, text_size: int) -> Stack:
    sizes = read_tower(vision, _VISION)
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    adapter_in = vision.integer("projector_input_dim", default=4096, minimum=1, maximum=LARGEST_WIDTH)
    adapter_out = vision.integer("projector_output_dim", default=4096, minimum=1, maximum=LARGEST_WIDTH)
    output = vision.integer("vision_output_dim", default=7680, minimum=1, maximum=LARGEST_WIDTH)
    ratio = vision.number("pixel_shuffle_ratio", default=0.5)
    if not 0 < ratio <= 1:
        raise vision.error("pixel_shuffle_ratio", f"is {ratio}; expected above 0 and at most 1")
    patch_elements = sizes.channels * sizes.patch_size**2
    adapter = f"{_MODEL}.vision_adapter.mlp"
    tensors = (
        parameter(f"{_MODEL}.class_embedding", hidden),
        parameter(f"{_MODEL}.positional_embedding_vlm", sizes.patches + 1, hidden),
        *linear(f"{_MODEL}.patch_embedding.linear", hidden, patch_elements, Role.VISION, column=whole(hidden)),
        *layer_norm(f"{_MODEL}.layernorm_pre", hidden).tensors(),
        *layer_norm(f"{_MODEL}.layernorm_post", hidden).tensors(),
        *linear(f"{adapter}.fc1", adapter_in, inner, Role.PROJECTOR, column=whole(adapter_in)),
        *linear(f"{adapter}.fc2", adapter_out, adapter_out, Role.PROJECTOR, row=whole(adapter_out)),
        *linear("multi_modal_projector.linear_1", text_size, output, Role.PROJECTOR, column=whole(text_size)),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=inner,
        activation=vision.text("hidden_act", default="gelu"),
        norms=(layer_norm("input_layernorm", hidden), layer_norm("post_attention_layernorm", hidden)),
        attention_names=AttentionNames(),
        rotary=True,
    )
    tokens = int(sizes.patches * ratio**2)
    tiles = _MAX_TILES + 1
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_MODEL}.model.layers",
        tokens_per_item=tiles * tokens,
        patches_per_item=tiles * (sizes.patches + 1),
        input_elements_per_item=tiles * sizes.pixels,
        detail=f"at most {_MAX_TILES} tiles of {sizes.image_size} x {sizes.image_size} and an overview,"
        f" {tokens} tokens each, separators not counted (transformers Llama4ImageProcessor, max_patches 16)",
    )
