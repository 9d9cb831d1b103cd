"""Qwen2-MoE and Qwen3-MoE: experts in every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.

qwen2_moe  biases on query, key and value; a shared expert behind a gate of its own
qwen3_moe  norms on query and key heads; no shared expert

Sources: transformers 5.24 configuration_ and modeling_ of both; vLLM 0.19.1 models/qwen2_moe.py, qwen3_moe.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, layers_of, read_dimensions, read_rotary_dim
from planner.model.families.experts import pre_norms, read_expert_counts, read_width, shared_experts
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.feed_forward import FeedForward, Mlp, Moe
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_QWEN2 = "qwen2_moe"
_SIZES: Final[Mapping[str, Mapping[str, int]]] = {
    "qwen2_moe": {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 32768,
    },
    "qwen3_moe": {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
    },
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a qwen2_moe or qwen3_moe config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: windowed attention, which no published model of these uses.
    """
    model_type = raw.text("model_type", default="qwen3_moe")
    is_second = model_type == _QWEN2
    refuse_unless(raw, "use_sliding_window", False)
    raw.has("sliding_window", "max_window_layers", "layer_types")  # they mean nothing without use_sliding_window
    raw.has("shared_expert_intermediate_size")  # Qwen3-Coder states 0
    dims = read_dimensions(raw, defaults=_SIZES.get(model_type, _SIZES["qwen3_moe"]))
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    declared = False if is_second else raw.flag("attention_bias", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=raw.flag("qkv_bias", default=True) if is_second else declared,
        output_bias=declared,
        query_norm=None if is_second else Norm("q_norm", dims.head_dim),
        key_norm=None if is_second else Norm("k_norm", dims.head_dim),
    )
    dense, moe = _feed_forwards(raw, is_second)
    sparse = sparse_pattern(raw, dims.num_hidden_layers)

    def layer(has_experts: bool) -> Layer:
        return Layer(mixers=(attention,), feed_forward=moe if has_experts else dense, norms=pre_norms(dims.hidden_size))

    return assemble(
        raw,
        dims,
        layers_of(sparse, layer),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def sparse_pattern(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have experts."""
    dense_layers = set(raw.integers("mlp_only_layers") or ())
    step = raw.integer("decoder_sparse_step", default=1, minimum=1)
    return [index not in dense_layers and (index + 1) % step == 0 for index in range(count)]


def _feed_forwards(raw: RawConfig, is_second: bool) -> tuple[FeedForward, FeedForward]:
    """The dense layers' MLP and the expert layers' block."""
    activation = raw.text("hidden_act", default="silu")
    experts, active = read_expert_counts(
        raw,
        ("num_experts", "num_local_experts"),
        ("num_experts_per_tok",),
        defaults=(60, 4) if is_second else (128, 8),
    )
    width = read_width(raw, "shared_expert_intermediate_size", default=5632) if is_second else 0
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(raw, "moe_intermediate_size", default=1408 if is_second else 768),
        activation=activation,
        shared=shared_experts(1, width, activation=activation, block="shared_expert") if is_second else None,
        shared_gate=is_second,
    )
    dense = Mlp(
        intermediate_size=read_width(raw, "intermediate_size", default=5632 if is_second else 6144),
        activation=activation,
    )
    return dense, moe
