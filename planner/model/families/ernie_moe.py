"""ERNIE 4.5 with experts: in every `moe_layer_interval`-th layer between `moe_layer_start_index` and
`moe_layer_end_index`.

Sources: transformers 5.24 configuration_ and modeling_ernie4_5_moe; vLLM 0.19.1 models/ernie45_moe.py (router kept in
fp32), ernie_mtp.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, layers_of, read_dimensions, read_rotary_dim
from planner.model.families.experts import draft_count, pre_norms, read_expert_counts, read_width, shared_experts
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor

_SIZES: Final = {
    "vocab_size": 103424,
    "hidden_size": 2560,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an ernie4_5_moe config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw, tie_default=True, defaults=_SIZES)
    hidden = dims.hidden_size
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("use_bias", default=False)
    activation = raw.text("hidden_act", default="silu")
    attention = attention_of(dims, rotary_dim=rotary_dim, bias=bias, output_bias=bias)
    dense = Mlp(intermediate_size=read_width(raw, "intermediate_size", default=12288), activation=activation, bias=bias)
    moe = _moe(raw, activation, bias)

    def layer(sparse: bool) -> Layer:
        feed_forward = moe if sparse else dense
        # the score correction is a parameter here, in a module of its own
        extra = (
            Tensor("mlp.gate.moe_statics.e_score_correction_bias", (1, moe.num_experts), Role.ROUTER, dtype="float32"),
        )
        return Layer(
            mixers=(attention,), feed_forward=feed_forward, norms=pre_norms(hidden), extra=extra if sparse else ()
        )

    drafts = draft_count(raw)
    spec = assemble(
        raw,
        dims,
        layers_of(_sparse_layers(raw, dims.num_hidden_layers), layer),
        final_norm=Norm("model.norm", hidden),
        rotary_dim=rotary_dim,
        head_bias=bias,
    )
    return replace(spec, draft_layers=(_draft(layer(False), hidden),) * drafts)


def _moe(raw: RawConfig, activation: str, bias: bool) -> Moe:
    experts, active = read_expert_counts(
        raw,
        ("moe_num_experts", "num_experts"),
        ("moe_k", "num_experts_per_tok"),
        defaults=(64, 6),
    )
    width = read_width(raw, "moe_intermediate_size", default=1536)
    shared = raw.integer("moe_num_shared_experts", default=2, maximum=1 << 10)
    return Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        router_dtype="float32",
        shared=shared_experts(shared, width, activation=activation, bias=bias),
    )


def _sparse_layers(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have experts; an end of -1 is the last layer."""
    raw.has("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval")
    first = raw.integer("moe_layer_start_index", default=1)
    last = raw.integer("moe_layer_end_index", default=-1, minimum=-1)
    interval = raw.integer("moe_layer_interval", default=1, minimum=1)
    last = count - 1 if last == -1 else last
    return [(index + 1) % interval == 0 and first <= index <= last for index in range(count)]


def _draft(layer: Layer, hidden_size: int) -> Layer:
    """A dense layer behind a matrix that joins the normed embedding of the next token and the stack's output."""
    return replace(
        layer,
        norms=(Norm("mtp_emb_norm", hidden_size), Norm("mtp_hidden_norm", hidden_size), *layer.norms),
        extra=(Tensor("mtp_linear_proj.weight", (hidden_size, 2 * hidden_size), Role.DRAFT),),
    )
