"""Experts behind plain attention, with shared ones beside them: DeepSeek-MoE 16B and dots.llm1.

deepseek   the first DeepSeek with experts: multi-head attention, no correction at the router
dots1      a norm on each query and key head, a score correction at the router

Sources: arXiv 2401.06066 and DeepSeek's own modeling code; transformers 5.24 models/dots1; vLLM 0.19.1
models/deepseek.py, dots1.py.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, layers_of, read_dimensions, read_rotary_dim, refuse
from planner.model.families.experts import pre_norms, read_expert_counts, read_width, shared_experts, sparse_layers
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a deepseek or dots1 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: experts in every n-th layer only.
    """
    dots = raw.text("model_type", default="deepseek") == "dots1"
    dims = read_dimensions(raw, defaults={"max_position_embeddings": 2048})
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    biased = raw.flag("attention_bias", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=biased,
        output_bias=biased,
        query_norm=Norm("q_norm", dims.head_dim) if dots else None,
        key_norm=Norm("k_norm", dims.head_dim) if dots else None,
    )
    if raw.integer("moe_layer_freq", default=1, minimum=1) != 1:
        raise refuse(raw, "moe_layer_freq", "is not 1; experts in every n-th layer are not understood here")
    activation = raw.text("hidden_act", default="silu")
    experts, active = read_expert_counts(raw, ("n_routed_experts",), ("num_experts_per_tok",), defaults=(None, None))
    width = read_width(raw, "moe_intermediate_size", default=1408)
    shared = raw.integer("n_shared_experts", default=0, maximum=1 << 10)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        correction_bias=dots,
        shared=shared_experts(shared, width, activation=activation),
    )
    dense = Mlp(intermediate_size=read_width(raw, "intermediate_size", default=10944), activation=activation)

    def layer(sparse: bool) -> Layer:
        return Layer(mixers=(attention,), feed_forward=moe if sparse else dense, norms=pre_norms(dims.hidden_size))

    sparse = sparse_layers(raw, dims.num_hidden_layers, dense_default=0)
    return assemble(
        raw, dims, layers_of(sparse, layer), final_norm=Norm("model.norm", dims.hidden_size), rotary_dim=rotary_dim
    )
