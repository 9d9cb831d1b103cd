"""Idefics 3 and SmolVLM: SigLIP's encoder, patches folded by scale_factor, one linear layer, a Llama decoder.

Source: transformers 5.24 models/idefics3, smolvlm (configuration_, modeling_, processing_).
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import Tower, read_tower, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import layer_norm

_TOWER = "model.vision_model"
_SIZES = {
    "hidden_size": 1152,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "intermediate_size": 3072,
    "patch_size": 32,
    "image_size": 224,
}
# The longest side that the processors resize to, in tiles of the tower's own size, and one overview.
_TILES_A_SIDE = 4


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an idefics3 or smolvlm config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a decoder that is not understood.
    """
    text = text_spec(raw, text_type="llama", prefix="model.text_model")
    vision = read_vision_section(raw)
    tower = siglip_with_any_grid(vision, _TOWER)
    fold = raw.integer("scale_factor", default=2, minimum=1, maximum=64)
    tokens = tower.sizes.patches // fold**2
    tiles = _TILES_A_SIDE**2 + 1
    stack = replace(
        tower.stack,
        tensors=(
            *tower.stack.tensors,
            *projector(
                "model.connector.modality_projection",
                (tower.sizes.hidden_size * fold**2, text.hidden_size),
                bias=False,
                sharded=False,
                names=("proj",),
            ),
        ),
        tokens_per_item=tiles * tokens,
        patches_per_item=tiles * tower.positions,
        input_elements_per_item=tiles * tower.sizes.pixels,
        detail=f"at most {_TILES_A_SIDE} x {_TILES_A_SIDE} tiles of {tower.sizes.image_size} x {tower.sizes.image_size}"
        f" and an overview, {tokens} tokens each (transformers Idefics3ImageProcessor)",
    )
    return multimodal(raw, text, (stack,), vision)


def siglip_with_any_grid(vision: RawConfig, prefix: str, *, layers_left_out: int = 0) -> Tower:
    """SigLIP's encoder without its pooling head, with a position for every patch of its largest image.

    Args:
        layers_left_out: of the last layers, how many the wrapper does not build.
    """
    sizes = read_tower(vision, _SIZES)
    hidden = sizes.hidden_size
    embeddings = f"{prefix}.embeddings"
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu_pytorch_tanh"),
        norms=(layer_norm("layer_norm1", hidden), layer_norm("layer_norm2", hidden)),
        attention_names=AttentionNames(output="out_proj"),
    )
    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=(
            *convolution(
                f"{embeddings}.patch_embedding", hidden, sizes.channels, sizes.patch_size, sizes.patch_size, bias=True
            ),
            parameter(f"{embeddings}.position_embedding.weight", sizes.patches, hidden),
            *layer_norm(f"{prefix}.post_layernorm", hidden).tensors(),
        ),
        layers=(layer,) * max(0, sizes.num_layers - layers_left_out),
        layer_prefix=f"{prefix}.encoder.layers",
    )
    return Tower(stack, sizes, sizes.patches)
