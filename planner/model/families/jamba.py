"""Jamba: Mamba 1 layers with one attention layer in eight, and experts in every other layer. No positions.

Source: transformers 5.24 configuration_jamba, modeling_jamba.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, read_dimensions
from planner.model.families.mamba import read_time_step_rank
from planner.model.families.recurrent import FULL, LINEAR, read_state_dtype, stack
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, MlpNames, Moe, MoeNames
from planner.model.kinds.mamba import Mamba1
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a jamba config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw)
    hidden = dims.hidden_size
    attention = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
    )
    proj_bias = raw.flag("mamba_proj_bias", default=False)
    mamba = Mamba1(
        intermediate_size=raw.integer("mamba_expand", default=2, minimum=1, maximum=64) * hidden,
        state_size=raw.integer("mamba_d_state", default=16, minimum=1, maximum=1 << 16),
        conv_kernel=raw.integer("mamba_d_conv", default=4, minimum=1, maximum=1 << 10),
        time_step_rank=read_time_step_rank(raw, hidden, "mamba_dt_rank"),
        use_bias=proj_bias,
        conv_bias=raw.flag("mamba_conv_bias", default=True),
        inner_norms=True,
        state_dtype=read_state_dtype(raw),
        block="mamba",
    )
    inner, activation = raw.integer("intermediate_size", minimum=1), raw.text("hidden_act", default="silu")
    dense = Mlp(intermediate_size=inner, activation=activation, names=MlpNames(block="feed_forward"))
    experts = raw.integer("num_experts", "num_local_experts", default=16, minimum=1, maximum=1 << 16)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("num_experts_per_tok", default=2, minimum=1, maximum=max(2, experts)),
        moe_intermediate_size=inner,
        activation=activation,
        names=MoeNames(block="feed_forward", router="router"),
    )
    norms = (Norm("input_layernorm", hidden), Norm("pre_ff_layernorm", hidden))
    attends = _every(raw, "attn_layer", dims.num_hidden_layers, period=8, offset=4)
    routes = _every(raw, "expert_layer", dims.num_hidden_layers, period=2, offset=1)

    def make(key: tuple[str, bool]) -> Layer:
        kind, is_sparse = key
        return Layer(
            mixers=(attention if kind == FULL else mamba,), feed_forward=moe if is_sparse else dense, norms=norms
        )

    keys = [
        (FULL if is_attention else LINEAR, is_sparse and experts > 1)
        for is_attention, is_sparse in zip(attends, routes, strict=True)
    ]
    return assemble(raw, dims, stack(keys, make), final_norm=Norm("model.final_layernorm", hidden))


def _every(raw: RawConfig, name: str, count: int, *, period: int, offset: int) -> list[bool]:
    """Which layers are the `offset`-th of each `period`.

    Raises:
        ConfigError: an offset that is not smaller than its period.
    """
    period = raw.integer(f"{name}_period", default=period, minimum=1)
    offset = raw.integer(f"{name}_offset", default=offset)
    if offset >= period:
        raise raw.error(f"{name}_offset", f"is {offset}; expected less than {name}_period {period}")
    return [index % period == offset for index in range(count)]
