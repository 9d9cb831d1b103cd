"""Experts in every layer and nothing beside them: Mixtral, Phi-3.5-MoE, OLMoE, Granite MoE, MiniMax-M2.

mixtral     Mistral's attention, 8 experts of the MLP's full width
phimoe      LayerNorms with shifts, optional biases on the projections and the head
olmoe       norms over all query and all key elements
granitemoe  Mixtral's layer with scaled residuals
minimax_m2  norms over all query and all key elements, half of each head rotated, a score correction at the router

Sources: transformers 5.24 configuration_ and modeling_ of each; vLLM 0.19.1 models/mixtral.py, phimoe.py, olmoe.py,
granitemoe.py, minimax_m2.py (its router is kept in fp32).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.families.experts import pre_norms, read_expert_counts, read_width
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.feed_forward import Moe, MoeNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, layer_norm

_BLOCK = "block_sparse_moe"
_NAMES = MoeNames(block=_BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """What a transformers 5.24 config class assumes for keys that are absent, and how its layer differs.

    Args:
        key_value_heads: None: as many as query heads.
        windowed: honours sliding_window (absent or null: none).
        biased: honours attention_bias.
        wide_norms: norms over all query and all key elements.
    """

    sizes: Mapping[str, int]
    intermediate_size: int
    experts: int
    active: int
    head_dim: int | None = None
    windowed: bool = False
    biased: bool = False
    wide_norms: bool = False
    names: MoeNames = _NAMES


_LONG: Final = {"max_position_embeddings": 131072}
_CLASSES: Final[Mapping[str, _Class]] = {
    "mixtral": _Class(
        sizes={
            **_LONG,
            "vocab_size": 32000,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        intermediate_size=14336,
        experts=8,
        active=2,
        windowed=True,
    ),
    "phimoe": _Class(
        sizes={
            **_LONG,
            "vocab_size": 32064,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        intermediate_size=6400,
        experts=16,
        active=2,
        windowed=True,
        biased=True,
    ),
    "olmoe": _Class(
        sizes={
            "vocab_size": 50304,
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "max_position_embeddings": 4096,
        },
        intermediate_size=2048,
        experts=64,
        active=8,
        biased=True,
        wide_norms=True,
        names=MoeNames(),
    ),
    "granitemoe": _Class(
        sizes={
            "vocab_size": 32000,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
        intermediate_size=11008,
        experts=8,
        active=2,
        biased=True,
        names=MoeNames(block=_BLOCK, router="router.layer"),
    ),
    "minimax_m2": _Class(
        sizes={
            "vocab_size": 200064,
            "hidden_size": 3072,
            "num_hidden_layers": 62,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "max_position_embeddings": 196608,
        },
        intermediate_size=1536,
        experts=256,
        active=8,
        head_dim=128,
        wide_norms=True,
        names=MoeNames(block=_BLOCK, correction="e_score_correction_bias"),
    ),
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a config of one of the model types above.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    model_type = raw.text("model_type", default="mixtral")
    assumed = _CLASSES.get(model_type, _CLASSES["mixtral"])
    dims = read_dimensions(raw, head_dim_default=assumed.head_dim, defaults=assumed.sizes)
    hidden = dims.hidden_size
    rotary_dim = _rotary_dim(raw, dims, model_type)
    shifted = model_type == "phimoe"
    bias = raw.flag("attention_bias", default=False) if assumed.biased else False
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        sliding_window=raw.optional_integer("sliding_window", minimum=1) if assumed.windowed else None,
        bias=bias,
        output_bias=bias,
        query_norm=Norm("q_norm", dims.num_attention_heads * dims.head_dim) if assumed.wide_norms else None,
        key_norm=Norm("k_norm", dims.num_key_value_heads * dims.head_dim) if assumed.wide_norms else None,
    )
    norms = pre_norms(hidden)
    if shifted:
        norms = (layer_norm("input_layernorm", hidden), layer_norm("post_attention_layernorm", hidden))
    layer = Layer(mixers=(attention,), feed_forward=_moe(raw, assumed, model_type), norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("model.norm", hidden) if shifted else Norm("model.norm", hidden),
        rotary_dim=rotary_dim,
        head_bias=raw.flag("lm_head_bias", default=False) if shifted else False,
    )


def _moe(raw: RawConfig, assumed: _Class, model_type: str) -> Moe:
    experts, active = read_expert_counts(
        raw, ("num_local_experts", "num_experts"), ("num_experts_per_tok",), defaults=(assumed.experts, assumed.active)
    )
    corrected = model_type == "minimax_m2"
    return Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(raw, "intermediate_size", default=assumed.intermediate_size),
        activation=raw.text("hidden_act", default="silu"),
        router_dtype="float32" if corrected else None,
        correction_bias=corrected,
        names=assumed.names,
    )


def _rotary_dim(raw: RawConfig, dims: Dimensions, model_type: str) -> int:
    """MiniMax-M2 states the rotated elements, and ships without the draft layers that its config counts."""
    whole = read_rotary_dim(raw, dims.head_dim)
    if model_type != "minimax_m2":
        return whole
    refuse_unless(raw, "use_qk_norm", True)
    refuse_unless(raw, "qk_norm_type", "per_layer")
    refuse_unless(raw, "shared_intermediate_size", 0)
    refuse_unless(raw, "use_routing_bias", True)
    raw.has("num_mtp_modules", "mtp_transformer_layers")
    return raw.integer("rotary_dim", default=whole, maximum=dims.head_dim)
