"""OLMo 1 to 3: open models that moved their norms.

olmo    LayerNorm without weights
olmo2   RMSNorm after attention and MLP rather than before, and over all queries and all keys at once
olmo3   as olmo2, three windowed layers to one full

Source: transformers 5.24 `models/{olmo,olmo2,olmo3}`; arXiv 2402.00838, 2501.00656. vLLM 0.19 (`olmo2.py`) gathers
queries and keys to norm them, so that each GPU holds those norms whole.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    sliding_by_layer,
)
from planner.model.kinds.feed_forward import Mlp
from planner.model.rope import RopeTable, rope_table, rope_tables_by_type
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SLIDING_WINDOW = 4096


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an olmo, olmo2 or olmo3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    model_type = raw.text("model_type", default="olmo2")
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    first = model_type == "olmo"
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )
    names = ("input_layernorm", "post_attention_layernorm")
    if not first:
        names = ("post_attention_layernorm", "post_feedforward_layernorm")

    def layer(window: int | None) -> Layer:
        attention = attention_of(
            dims,
            rotary_dim=rotary_dim,
            sliding_window=window,
            bias=bias,
            output_bias=bias,
            query_norm=None if first else Norm("q_norm", dims.num_attention_heads * dims.head_dim),
            key_norm=None if first else Norm("k_norm", dims.num_key_value_heads * dims.head_dim),
        )
        norms = tuple(_norm(name, dims.hidden_size, first) for name in names)
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    windows = _windows(raw, dims) if model_type == "olmo3" else [None] * dims.num_hidden_layers
    return assemble(
        raw,
        dims,
        layers_of(windows, layer),
        final_norm=_norm("model.norm", dims.hidden_size, first),
        rope_tables=_rope_tables(raw, dims, model_type, rotary_dim),
    )


def _rope_tables(raw: RawConfig, dims: Dimensions, model_type: str, rotary_dim: int) -> tuple[RopeTable, ...]:
    positions = dims.max_position_embeddings
    if model_type != "olmo3":
        return (rope_table(raw, rotary_dim=rotary_dim, max_position_embeddings=positions),)
    return rope_tables_by_type(raw, rotary_dim=rotary_dim, max_position_embeddings=positions, same_base=True)


def _norm(name: str, size: int, first: bool) -> Norm:
    return Norm(name, size, "layer", weight=False) if first else Norm(name, size)


def _windows(raw: RawConfig, dims: Dimensions) -> list[int | None]:
    """Every fourth layer is full unless layer_types says otherwise (transformers 5.24 Olmo3Config)."""
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = _SLIDING_WINDOW
    sliding = sliding_by_layer(raw, dims.num_hidden_layers)
    if sliding is None:
        return [window if (index + 1) % 4 else None for index in range(dims.num_hidden_layers)]
    return [window if windowed else None for windowed in sliding]
