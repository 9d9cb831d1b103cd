"""Llama 3.2 Vision: a decoder in which every fifth layer attends to the image instead of the text.

A cross-attention layer keeps keys and values of the image's positions, once per sequence, and none of the text.
Tiles of 560 x 560 (four at most) pass a local transformer and a gated global one.

Sources: the Llama 3 report (arXiv 2407.21783), section 7; transformers 5.24 models/mllama. vLLM served it up to
0.10.2 (its registry names that as the last version).
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, attention_of, layers_of, read_dimensions
from planner.model.families.nested import multimodal, text_section
from planner.model.families.vision import LARGEST_WIDTH, TowerSizes, read_tower, read_vision_section
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp
from planner.model.kinds.tower import convolution, encoder_layer, parameter
from planner.model.rope import rope_table
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Norm, Role, Tensor, layer_norm, linear, vocabulary_matrix

_TEXT = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
}
_VISION = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "attention_heads": 16,
    "intermediate_size": 5120,
    "patch_size": 14,
    "image_size": 448,
}
_CROSS_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]
_ASPECT_RATIOS = 8
# The embedding has eight rows for image tokens that the head cannot produce (transformers MllamaTextModel)
_EXTRA_ROWS = 8
_PREFIX = "model.language_model"
_VISION_MODEL = "model.vision_model"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an mllama config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    text = text_section(raw, text_type="mllama_text_model", tie_default=False)
    vision = read_vision_section(raw)
    sizes = read_tower(vision, _VISION, heads="attention_heads")
    tiles = vision.integer("max_num_tiles", default=4, minimum=1, maximum=64)
    positions = tiles * (sizes.patches + 1)
    dims = read_dimensions(text, defaults=_TEXT)
    spec = assemble(
        text,
        dims,
        _decoder_layers(text, dims, positions),
        final_norm=Norm(f"{_PREFIX}.norm", dims.hidden_size),
        embeddings=(
            vocabulary_matrix(
                f"{_PREFIX}.embed_tokens.weight", dims.vocab_size + _EXTRA_ROWS, dims.hidden_size, Role.EMBEDDING
            ),
        ),
        layer_prefix=f"{_PREFIX}.layers",
        rope_tables=(rope_table(text, rotary_dim=dims.head_dim, max_position_embeddings=dims.max_position_embeddings),),
        notes=("vLLM serves this model type up to version 0.10.2",),
    )
    return multimodal(raw, spec, _towers(vision, sizes, tiles, dims.hidden_size), vision)


def _decoder_layers(text: RawConfig, dims: Dimensions, positions: int) -> tuple[Layer, ...]:
    cross = text.integers("cross_attention_layers")
    crossing = set(_CROSS_LAYERS if cross is None else cross)
    if crossing and max(crossing) >= dims.num_hidden_layers:
        raise text.error("cross_attention_layers", f"names layer {max(crossing)} of {dims.num_hidden_layers}")
    mlp = Mlp(
        intermediate_size=text.integer("intermediate_size", default=14_336, minimum=1, maximum=LARGEST_WIDTH),
        activation=text.text("hidden_act", default="silu"),
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))
    gates = (
        parameter("cross_attn_attn_gate", 1, role=Role.OTHER),
        parameter("cross_attn_mlp_gate", 1, role=Role.OTHER),
    )
    to_image = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        query_norm=Norm("q_norm", dims.head_dim),
        key_norm=Norm("k_norm", dims.head_dim),
        source_tokens=positions,
        causal=False,
        names=AttentionNames(block="cross_attn"),
    )
    to_text = attention_of(dims, rotary_dim=dims.head_dim)

    def layer(crosses: bool) -> Layer:
        return Layer(
            mixers=(to_image if crosses else to_text,),
            feed_forward=mlp,
            norms=norms,
            extra=gates if crosses else (),
        )

    return layers_of([index in crossing for index in range(dims.num_hidden_layers)], layer)


def _towers(vision: RawConfig, sizes: TowerSizes, tiles: int, text_size: int) -> tuple[Stack, ...]:
    hidden, positions = sizes.hidden_size, sizes.patches + 1
    ratios = vision.items("supported_aspect_ratios")
    rows = (len(ratios) if ratios is not None else _ASPECT_RATIOS) + 1
    chosen = vision.integers("intermediate_layers_indices") or [3, 7, 15, 23, 30]
    output = vision.integer("vision_output_dim", default=hidden * (1 + len(chosen)), minimum=1, maximum=LARGEST_WIDTH)
    position = f"{_VISION_MODEL}.gated_positional_embedding"
    tensors: list[Tensor] = [
        parameter(f"{_VISION_MODEL}.class_embedding", hidden),
        *convolution(f"{_VISION_MODEL}.patch_embedding", hidden, sizes.channels, sizes.patch_size, sizes.patch_size),
        parameter(f"{position}.gate", 1),
        parameter(f"{position}.embedding", positions, hidden),
        parameter(f"{position}.tile_embedding.weight", rows, tiles * positions * hidden),
        *layer_norm(f"{_VISION_MODEL}.layernorm_pre", hidden).tensors(),
        *layer_norm(f"{_VISION_MODEL}.layernorm_post", hidden).tensors(),
        *linear("model.multi_modal_projector", text_size, output, Role.PROJECTOR, bias=True),
    ]
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        tensors.append(parameter(f"{_VISION_MODEL}.{name}.gate", 1))
        tensors.append(parameter(f"{_VISION_MODEL}.{name}.embedding.weight", rows, tiles * hidden))

    def layer(gates: tuple[Tensor, ...]) -> Layer:
        return encoder_layer(
            hidden_size=hidden,
            num_heads=sizes.num_heads,
            intermediate_size=sizes.intermediate_size,
            activation=vision.text("hidden_act", default="gelu"),
            norms=(layer_norm("input_layernorm", hidden), layer_norm("post_attention_layernorm", hidden)),
            attention_names=AttentionNames(),
            attention_bias=False,
            extra=gates,
        )

    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tuple(tensors),
        layers=(layer(()),) * sizes.num_layers,
        layer_prefix=f"{_VISION_MODEL}.transformer.layers",
        tokens_per_item=1,
        patches_per_item=tiles * positions,
        kept_states=len(chosen),
        input_elements_per_item=tiles * sizes.pixels,
        detail=f"at most {tiles} tiles of {sizes.image_size} x {sizes.image_size}, {positions:,} positions each,"
        " kept by the cross-attention layers; one token in the text (transformers MllamaProcessor)",
    )
    count = vision.integer("num_global_layers", default=8, minimum=0, maximum=1000)
    if not count:
        return (stack,)
    above = Stack(
        name="vision, global",
        hidden_size=hidden,
        tensors=(),
        layers=(layer((parameter("gate_attn", 1), parameter("gate_ffn", 1))),) * count,
        layer_prefix=f"{_VISION_MODEL}.global_transformer.layers",
        patches_per_item=tiles * positions,
    )
    return (stack, above)
