"""Command R and Command A: attention and MLP side by side after one LayerNorm without bias, a tied embedding.

cohere    every layer sees everything; Command R+ norms each head of queries and keys with a scale of its own
cohere2   three windowed layers to one full, and the full ones do not rotate

Source: transformers 5.24 `models/{cohere,cohere2}`; rotation of the windowed layers only, vLLM 0.19 `commandr.py`.
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
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, layer_norm

_SLIDING_WINDOW = 4096


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a cohere or cohere2 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    second = raw.text("model_type", default="cohere") == "cohere2"
    dims = read_dimensions(raw, tie_default=True, defaults={"max_position_embeddings": 8192})
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    head_norms = not second and raw.flag("use_qk_norm", default=False)
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )
    norms = (layer_norm("input_layernorm", dims.hidden_size, bias=False),)

    def layer(kind: tuple[bool, int | None]) -> Layer:
        rotates, window = kind
        attention = attention_of(
            dims,
            rotary_dim=rotary_dim if rotates else 0,
            sliding_window=window,
            bias=bias,
            output_bias=bias,
            query_norm=_head_norm("q_norm", dims.head_dim, dims.num_attention_heads) if head_norms else None,
            key_norm=_head_norm("k_norm", dims.head_dim, dims.num_key_value_heads) if head_norms else None,
        )
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    kinds = _kinds(raw, dims) if second else [(True, None)] * dims.num_hidden_layers
    return assemble(
        raw,
        dims,
        layers_of(kinds, layer),
        final_norm=layer_norm("model.norm", dims.hidden_size, bias=False),
        rotary_dim=rotary_dim,
    )


def _head_norm(name: str, size: int, heads: int) -> Norm:
    return Norm(name, size, "layer", heads=heads)


def _kinds(raw: RawConfig, dims: Dimensions) -> list[tuple[bool, int | None]]:
    """Whether each layer rotates, and its window: windowed layers rotate, full ones do not."""
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = _SLIDING_WINDOW
    pattern = raw.integer("sliding_window_pattern", "_sliding_window_pattern", default=4, minimum=1)
    sliding = sliding_by_layer(raw, dims.num_hidden_layers)
    if sliding is None:
        sliding = [bool((index + 1) % pattern) for index in range(dims.num_hidden_layers)]
    return [(windowed, window if windowed else None) for windowed in sliding]
