"""Llama 4's decoder: chunked attention with positions in three layers of four, full attention without in the fourth,
experts in every `interleave_moe_layer_step`-th layer.

The multimodal wrapper reads its text_config through this family.

Sources: transformers 5.24 configuration_ and modeling_llama4 (text classes); vLLM 0.19.1 models/llama4.py.
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
    refuse,
)
from planner.model.families.experts import pre_norms, read_expert_counts, read_width, shared_experts
from planner.model.kinds.feed_forward import Mlp, MlpNames, Moe, MoeNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES: Final = {
    "vocab_size": 202048,
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
_FULL, _CHUNKED = "full_attention", "chunked_attention"
_BLOCK = "feed_forward"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a llama4_text config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a layer type that is not understood.
    """
    dims = read_dimensions(raw, head_dim_default=128, defaults=_SIZES)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    activation = raw.text("hidden_act", default="silu")
    chunk = raw.optional_integer("attention_chunk_size", minimum=1)
    if chunk is None and not raw.given("attention_chunk_size"):
        chunk = 8192
    experts, active = read_expert_counts(
        raw, ("num_local_experts", "num_experts"), ("num_experts_per_tok",), defaults=(16, 1)
    )
    width = read_width(raw, "intermediate_size", default=8192)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        input_first=True,
        shared=shared_experts(1, width, activation=activation, block="shared_expert"),
        names=MoeNames(block=_BLOCK, router="router"),
    )
    dense = Mlp(
        intermediate_size=read_width(raw, "intermediate_size_mlp", default=16384),
        activation=activation,
        names=MlpNames(block=_BLOCK),
    )

    def layer(key: tuple[bool, bool, bool]) -> Layer:
        chunked, rotates, sparse = key
        attention = attention_of(dims, rotary_dim=rotary_dim if rotates else 0, bias=bias, output_bias=bias)
        return Layer(
            mixers=(replace(attention, attention_chunk_size=chunk if chunked else None),),
            feed_forward=moe if sparse else dense,
            norms=pre_norms(hidden),
        )

    rotating = _rotating(raw, count)
    kinds = list(zip(_chunked(raw, rotating), rotating, _sparse(raw, count), strict=True))
    return assemble(
        raw,
        dims,
        layers_of(kinds, layer),
        final_norm=Norm("model.norm", hidden),
        rotary_dim=rotary_dim,
    )


def _rotating(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have rotary positions: `no_rope_layers` holds 1 for those, despite its name; else all but every
    `no_rope_layer_interval`-th."""
    interval = raw.integer("no_rope_layer_interval", default=4, minimum=1)
    declared = raw.integers("no_rope_layers")
    if not declared:
        return [(index + 1) % interval != 0 for index in range(count)]
    if len(declared) != count:
        raise raw.error("no_rope_layers", f"has {len(declared)} entries; expected {count}")
    return [entry != 0 for entry in declared]


def _chunked(raw: RawConfig, rotating: list[bool]) -> list[bool]:
    """Which layers see only their chunk: `layer_types`, else those with positions."""
    types = raw.texts("layer_types", length=len(rotating))
    if types is None:
        return rotating
    for kind in types:
        if kind not in (_FULL, _CHUNKED):
            raise refuse(raw, "layer_types", f"holds {kind[:40]!r}; expected {_FULL} or {_CHUNKED}")
    return [kind == _CHUNKED for kind in types]


def _sparse(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have experts: `moe_layers`, else every `interleave_moe_layer_step`-th."""
    step = raw.integer("interleave_moe_layer_step", default=1, minimum=1)
    declared = raw.integers("moe_layers")
    if declared is None:
        return [(index + 1) % step == 0 for index in range(count)]
    chosen = set(declared)
    return [index in chosen for index in range(count)]
