"""MiMo-V2-Flash: five layers with a window of 128, twice the key heads and sinks, to one that sees everything.

Value heads are smaller than query and key heads; vLLM pads them to the same size in its cache. The checkpoint ships
three draft layers, of which vLLM runs one.

Sources: transformers 5.24 configuration_ and modeling_mimo_v2_flash; vLLM 0.19.1 models/mimo_v2_flash.py (router kept
in fp32 unless moe_router_dtype says otherwise); vLLM 0.33.0 models/mimo_v2_mtp.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    sliding_by_layer,
)
from planner.model.families.experts import draft_count, pre_norms, read_expert_counts, read_width, sparse_layers
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.rope import RopeTable
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor

_SIZES: Final = {
    "vocab_size": 152576,
    "hidden_size": 4096,
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
}
_PERIOD = 6


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a mimo_v2_flash config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    refuse_unless(raw, "add_full_attention_sink_bias", False)
    refuse_unless(raw, "add_swa_attention_sink_bias", True)
    if raw.integer("n_shared_experts", default=0):
        refuse_unless(raw, "n_shared_experts", 0)
    dims = read_dimensions(raw, head_dim_default=192, defaults=_SIZES)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    full, sliding = _attentions(raw, dims, rotary_dim)
    dense, moe = _feed_forwards(raw)

    def layer(key: tuple[bool, bool]) -> Layer:
        windowed, sparse = key
        return Layer(
            mixers=(sliding if windowed else full,), feed_forward=moe if sparse else dense, norms=pre_norms(hidden)
        )

    drafts = draft_count(raw, default=1)
    kinds = list(zip(_windowed(raw, count), _sparse(raw, count), strict=True))
    raw.has("attention_chunk_size")  # the window again
    spec = assemble(
        raw,
        dims,
        layers_of(kinds, layer),
        final_norm=Norm("model.norm", hidden),
        # one table for each base frequency
        rope_tables=(
            RopeTable(dims.max_position_embeddings, rotary_dim),
            RopeTable(dims.max_position_embeddings, sliding.rotary_dim),
        ),
    )
    draft = Layer(
        mixers=(sliding,),
        feed_forward=dense,
        norms=tuple(
            Norm(name, hidden) for name in ("enorm", "hnorm", "input_layernorm", "pre_mlp_layernorm", "final_layernorm")
        ),
        extra=(Tensor("eh_proj.weight", (hidden, 2 * hidden), Role.DRAFT),),
    )
    return replace(spec, draft_layers=(draft,) * drafts)


def _attentions(raw: RawConfig, dims: Dimensions, rotary_dim: int) -> tuple[Attention, Attention]:
    """The attention of a layer that sees everything, and of a windowed one."""
    bias = raw.flag("attention_bias", default=False)
    window = raw.integer("sliding_window", "sliding_window_size", default=129, minimum=1)
    value_head_dim = raw.integer("v_head_dim", default=128, minimum=1, maximum=1 << 14)
    full = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        value_head_dim=value_head_dim,
        rotary_dim=rotary_dim,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
    )
    heads = raw.integer("swa_num_attention_heads", default=dims.num_attention_heads, minimum=1, maximum=1 << 14)
    key_value_heads = raw.integer(
        "swa_num_key_value_heads", default=2 * dims.num_key_value_heads, minimum=1, maximum=1 << 14
    )
    if heads % key_value_heads:
        raise raw.error("swa_num_key_value_heads", f"is {key_value_heads}, which does not divide {heads} query heads")
    head_dim = raw.integer("swa_head_dim", default=dims.head_dim, minimum=1, maximum=1 << 14)
    sliding = replace(
        full,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        value_head_dim=raw.integer("swa_v_head_dim", default=value_head_dim, minimum=1, maximum=1 << 14),
        rotary_dim=read_rotary_dim(raw, head_dim),
        sliding_window=window,
        sinks=True,
    )
    return full, sliding


def _feed_forwards(raw: RawConfig) -> tuple[Mlp, Moe]:
    activation = raw.text("hidden_act", default="silu")
    experts, active = read_expert_counts(
        raw, ("n_routed_experts", "num_local_experts"), ("num_experts_per_tok",), defaults=(256, 8)
    )
    router_dtype = raw.text("moe_router_dtype", default="float32")
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(raw, "moe_intermediate_size", default=2048),
        activation=activation,
        router_dtype="float32" if router_dtype == "float32" else None,
        correction_bias=True,
    )
    return Mlp(intermediate_size=read_width(raw, "intermediate_size", default=16384), activation=activation), moe


def _windowed(raw: RawConfig, count: int) -> list[bool]:
    """Which layers are windowed: `layer_types`, else `hybrid_layer_pattern` (1: windowed), else all but the first and
    every sixth."""
    declared = sliding_by_layer(raw, count)
    if declared is not None:
        return declared
    pattern = raw.integers("hybrid_layer_pattern", length=count)
    if pattern is not None:
        return [entry != 0 for entry in pattern]
    return [index > 0 and (index + 1) % _PERIOD != 0 for index in range(count)]


def _sparse(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have experts: `mlp_layer_types`, else `moe_layer_freq` (one 0 or 1 a layer), else all but the
    first."""
    frequencies = raw.integers("moe_layer_freq", length=count)
    if frequencies is not None and not raw.has("mlp_layer_types"):
        return [entry != 0 for entry in frequencies]
    return sparse_layers(raw, count, dense_default=1)
