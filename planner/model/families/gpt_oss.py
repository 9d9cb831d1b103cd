"""gpt-oss: every other layer sees a window of 128 tokens, sinks in all of them, experts with biases.

Sources: transformers 5.24 configuration_ and modeling_gpt_oss; vLLM 0.19.1 models/gpt_oss.py.
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
from planner.model.families.experts import pre_norms, read_expert_counts, read_width
from planner.model.kinds.feed_forward import Moe, MoeNames
from planner.model.rope import RopeTable, rope_parameters, rope_table
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES: Final = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gpt_oss config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a layer type that is not understood.
    """
    dims = read_dimensions(raw, head_dim_default=64, defaults=_SIZES)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=True)
    attention = replace(attention_of(dims, rotary_dim=rotary_dim, bias=bias, output_bias=bias), sinks=True)
    experts, active = read_expert_counts(
        raw, ("num_local_experts", "num_experts"), ("num_experts_per_tok", "experts_per_token"), defaults=(128, 4)
    )
    raw.has("experts_per_token")  # a copy of num_experts_per_tok
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(raw, "intermediate_size", default=2880),
        activation="swigluoai",  # clamped, whatever hidden_act says
        expert_bias=True,
        input_first=True,
        router_bias=True,
        names=MoeNames(router="router"),
    )

    def layer(window: int | None) -> Layer:
        return Layer(
            mixers=(replace(attention, sliding_window=window),),
            feed_forward=moe,
            norms=pre_norms(dims.hidden_size),
        )

    # a config without a rope section has the class's own: YaRN from 4,096 positions by 32
    table = RopeTable(4096 * 32, rotary_dim)
    if rope_parameters(raw) is not None:
        table = rope_table(raw, rotary_dim=rotary_dim, max_position_embeddings=dims.max_position_embeddings)
    # vLLM asks for this model's table in fp32 (0.19.0 models/gpt_oss.py)
    tables = (replace(table, dtype="float32"),)
    return assemble(
        raw,
        dims,
        layers_of(_windows(raw, dims.num_hidden_layers), layer),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
        rope_tables=tables,
    )


def _windows(raw: RawConfig, count: int) -> list[int | None]:
    """The window of each layer: by `layer_types`, else every other layer from the first."""
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = 128
    sliding = sliding_by_layer(raw, count)
    if sliding is None:
        sliding = [index % 2 == 0 for index in range(count)]
    return [window if windowed else None for windowed in sliding]
