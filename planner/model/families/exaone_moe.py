"""K-EXAONE: EXAONE 4's windows (three layers to one that sees everything, without positions), with experts.

Sources: transformers 5.24 configuration_ and modeling_exaone_moe; vLLM 0.19.1 models/exaone_moe.py; vLLM 0.33.0
models/exaone_moe.py, exaone_moe_mtp.py (the draft layer is dense and sees everything, with positions).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    sliding_by_layer,
)
from planner.model.families.experts import (
    draft_count,
    draft_layer,
    pre_norms,
    read_expert_counts,
    read_width,
    shared_experts,
    sparse_layers,
)
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe, MoeNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES: Final = {
    "vocab_size": 102400,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 2048,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an exaone_moe config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a layer type that is not understood.
    """
    dims = read_dimensions(raw, defaults=_SIZES)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    activation = raw.text("hidden_act", default="silu")
    experts, active = read_expert_counts(raw, ("num_experts",), ("num_experts_per_tok",), defaults=(64, 8))
    width = read_width(raw, "moe_intermediate_size", default=1024)
    shared = raw.integer("num_shared_experts", default=1, maximum=1 << 10)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        correction_bias=True,
        shared=shared_experts(shared, width, activation=activation),
        names=MoeNames(correction="e_score_correction_bias"),
    )
    dense = Mlp(intermediate_size=read_width(raw, "intermediate_size", default=16384), activation=activation)
    windows = _windows(raw, count)
    windowed = any(windows)

    def attention(window: int | None) -> Attention:
        return attention_of(
            dims,
            rotary_dim=rotary_dim if window or not windowed else 0,
            sliding_window=window,
            query_norm=Norm("q_norm", dims.head_dim),
            key_norm=Norm("k_norm", dims.head_dim),
        )

    def layer(key: tuple[int | None, bool]) -> Layer:
        window, sparse = key
        return Layer(mixers=(attention(window),), feed_forward=moe if sparse else dense, norms=pre_norms(hidden))

    raw.has("is_moe_layer")  # mlp_layer_types in other words
    sparse = sparse_layers(raw, count, dense_default=1)
    drafts = draft_count(raw)
    spec = assemble(
        raw,
        dims,
        layers_of(list(zip(windows, sparse, strict=True)), layer),
        final_norm=Norm("model.norm", hidden),
        rotary_dim=rotary_dim,
    )
    draft = draft_layer((replace(attention(None), rotary_dim=rotary_dim),), dense, hidden)
    return replace(spec, draft_layers=(draft,) * drafts)


def _windows(raw: RawConfig, count: int) -> list[int | None]:
    """The window of each layer: by `layer_types`, else by `sliding_window_pattern` (a period, or letters L and G)."""
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = 4096
    sliding = sliding_by_layer(raw, count)
    pattern = raw.raw("sliding_window_pattern")
    if sliding is None and isinstance(pattern, str) and pattern:
        sliding = [pattern[index % len(pattern)] == "L" for index in range(count)]
    elif sliding is None:
        period = raw.integer("sliding_window_pattern", default=4, minimum=1)
        sliding = [(index + 1) % period != 0 for index in range(count)]
    return [window if is_sliding else None for is_sliding in sliding]
