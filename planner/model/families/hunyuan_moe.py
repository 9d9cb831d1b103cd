"""Tencent's models with experts: Hunyuan-A13B and Hy3.

hunyuan_v1_moe  experts and one shared MLP in every layer, norms on heads after rotation
hy_v3           a dense first layer, a score correction at an fp32 router, draft layers

Sources: transformers 5.24 configuration_ and modeling_ of both; vLLM 0.19.1 models/hunyuan_v1.py; vLLM 0.33.0
models/hy_v3.py, hy_v3_mtp.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    refuse,
)
from planner.model.families.experts import (
    MOST_EXPERTS,
    draft_count,
    draft_layer,
    pre_norms,
    read_expert_counts,
    read_width,
    shared_experts,
    sparse_layers,
)
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.feed_forward import Mlp, Moe, MoeNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_V1 = "hunyuan_v1_moe"
_SIZES: Final[Mapping[str, Mapping[str, int]]] = {
    "hunyuan_v1_moe": {
        "vocab_size": 290943,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    },
    "hy_v3": {
        "vocab_size": 120832,
        "hidden_size": 4096,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a hunyuan_v1_moe or hy_v3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    return _hunyuan(raw) if raw.text("model_type", default=_V1) == _V1 else _hy3(raw)


def _hunyuan(raw: RawConfig) -> ModelSpec:
    refuse_unless(raw, "use_qk_norm", True)
    refuse_unless(raw, "use_cla", False)
    refuse_unless(raw, "use_mla", False)
    refuse_unless(raw, "use_mixed_mlp_moe", True)
    if _by_layer(raw, "num_shared_expert", 1) != 1:
        raise refuse(raw, "num_shared_expert", "is not 1; only one shared expert is understood")
    dims = read_dimensions(raw, defaults=_SIZES[_V1])
    hidden = dims.hidden_size
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    activation = raw.text("hidden_act", default="silu")
    width = read_width(raw, "intermediate_size", default=11008)
    expert_width = _by_layer(raw, "moe_intermediate_size", width)
    if expert_width != width:
        raise refuse(raw, "moe_intermediate_size", f"is {expert_width}, not intermediate_size {width}")
    experts = _by_layer(raw, "num_experts", 1)
    active = _by_layer(raw, "moe_topk", 1)
    if active > experts:
        raise raw.error("moe_topk", f"is {active}, more than num_experts {experts}")
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        query_norm=Norm("query_layernorm", dims.head_dim),
        key_norm=Norm("key_layernorm", dims.head_dim),
    )
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        shared=shared_experts(1, width, activation=activation, block="shared_mlp"),
        names=MoeNames(router="gate.wg"),
    )
    layer = Layer(mixers=(attention,), feed_forward=moe, norms=pre_norms(hidden))
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("model.norm", hidden),
        rotary_dim=rotary_dim,
    )


def _by_layer(raw: RawConfig, field: str, default: int) -> int:
    """A number that the config may state once or for each layer; all layers must agree.

    Raises:
        ConfigError: not a positive number, or an empty list.
        UnsupportedArchitecture: layers that differ.
    """
    if not isinstance(raw.raw(field), list):
        return raw.integer(field, default=default, minimum=1, maximum=MOST_EXPERTS)
    values = raw.integers(field, minimum=1)
    if not values:
        raise raw.error(field, "is an empty list")
    if len(set(values)) > 1:
        raise refuse(raw, field, "differs between layers; only one value for all of them is understood")
    return values[0]


def _hy3(raw: RawConfig) -> ModelSpec:
    dims = read_dimensions(raw, head_dim_default=128, defaults=_SIZES["hy_v3"])
    hidden = dims.hidden_size
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    mlp_bias = raw.flag("mlp_bias", default=False)
    activation = raw.text("hidden_act", default="silu")
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        query_norm=Norm("q_norm", dims.head_dim),
        key_norm=Norm("k_norm", dims.head_dim),
    )
    experts, active = read_expert_counts(
        raw, ("num_experts", "num_local_experts"), ("num_experts_per_tok",), defaults=(192, 8)
    )
    width = read_width(raw, "moe_intermediate_size", default=1536)
    shared = raw.integer("num_shared_experts", default=1, minimum=1, maximum=1 << 10)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        router_dtype="float32",
        correction_bias=True,
        shared=shared_experts(shared, width, activation=activation, bias=mlp_bias),
        names=MoeNames(correction="e_score_correction_bias"),
    )
    dense = Mlp(
        intermediate_size=read_width(raw, "intermediate_size", default=13312), activation=activation, bias=mlp_bias
    )

    def layer(sparse: bool) -> Layer:
        return Layer(mixers=(attention,), feed_forward=moe if sparse else dense, norms=pre_norms(hidden))

    sparse = sparse_layers(raw, dims.num_hidden_layers, dense_default=1)
    drafts = draft_count(raw)
    spec = assemble(raw, dims, layers_of(sparse, layer), final_norm=Norm("model.norm", hidden), rotary_dim=rotary_dim)
    return replace(spec, draft_layers=(draft_layer((attention,), moe, hidden),) * drafts)
