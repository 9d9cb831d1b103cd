"""GLM-4.5 to 4.7: Qwen-like attention, half of each head rotated, experts after the first dense layers.

Sources: transformers 5.24 configuration_ and modeling_glm4_moe; vLLM 0.19.1 models/glm4_moe.py (router kept in fp32),
glm4_moe_mtp.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, layers_of, read_dimensions, read_rotary_dim
from planner.model.families.experts import (
    draft_count,
    draft_layer,
    pre_norms,
    read_expert_counts,
    read_width,
    shared_experts,
    sparse_layers,
)
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES: Final = {
    "vocab_size": 151552,
    "hidden_size": 4096,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a glm4_moe config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    dims = read_dimensions(raw, defaults=_SIZES)
    hidden = dims.hidden_size
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.5)
    head_norms = raw.flag("use_qk_norm", default=False)
    activation = raw.text("hidden_act", default="silu")
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=raw.flag("attention_bias", default=False),
        query_norm=Norm("q_norm", dims.head_dim) if head_norms else None,
        key_norm=Norm("k_norm", dims.head_dim) if head_norms else None,
    )
    experts, active = read_expert_counts(
        raw, ("n_routed_experts", "num_local_experts"), ("num_experts_per_tok",), defaults=(128, 8)
    )
    width = read_width(raw, "moe_intermediate_size", default=1408)
    shared = raw.integer("n_shared_experts", default=1, maximum=1 << 10)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        router_dtype="float32",
        correction_bias=True,
        shared=shared_experts(shared, width, activation=activation),
    )
    dense = Mlp(intermediate_size=read_width(raw, "intermediate_size", default=10944), activation=activation)

    def layer(sparse: bool) -> Layer:
        return Layer(mixers=(attention,), feed_forward=moe if sparse else dense, norms=pre_norms(hidden))

    sparse = sparse_layers(raw, dims.num_hidden_layers, dense_default=1)
    drafts = draft_count(raw, "num_nextn_predict_layers", "num_mtp_layers", default=1)
    spec = assemble(raw, dims, layers_of(sparse, layer), final_norm=Norm("model.norm", hidden), rotary_dim=rotary_dim)
    return replace(spec, draft_layers=(draft_layer((attention,), moe, hidden),) * drafts)
