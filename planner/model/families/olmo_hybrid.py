"""Olmo Hybrid: three gated delta net layers to one of attention with norms over all heads, no positions.

Source: transformers 5.24 configuration_olmo_hybrid, modeling_olmo_hybrid.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dimensions, read_rotary_dim
from planner.model.families.recurrent import FULL, LINEAR, check_layer_types, read_state_dtype, stack
from planner.model.kinds.attention import Attention
from planner.model.kinds.delta import GatedDeltaNet
from planner.model.kinds.feed_forward import Mlp
from planner.model.rope import rope_parameters
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an olmo_hybrid config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    dims = read_dimensions(raw)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    rotary_dim = read_rotary_dim(raw, dims.head_dim) if _rotates(raw) else 0
    bias = raw.flag("attention_bias", default=False)
    attention = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=rotary_dim,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
        query_norm=Norm("q_norm", dims.num_attention_heads * dims.head_dim),
        key_norm=Norm("k_norm", dims.num_key_value_heads * dims.head_dim),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1), activation=raw.text("hidden_act", default="silu")
    )
    made = {
        FULL: Layer(
            mixers=(attention,),
            feed_forward=mlp,
            norms=(Norm("post_attention_layernorm", hidden), Norm("post_feedforward_layernorm", hidden)),
        ),
        LINEAR: Layer(
            mixers=(_delta_net(raw, dims),),
            feed_forward=mlp,
            norms=(Norm("input_layernorm", hidden), Norm("post_attention_layernorm", hidden)),
        ),
    }
    types = raw.texts("layer_types", length=count)
    if types is None:
        types = [FULL if index % 4 == 3 else LINEAR for index in range(count)]
        if FULL not in types:
            types[-1] = FULL
    check_layer_types(raw, "layer_types", types, made)
    return assemble(
        raw, dims, stack(types, made.__getitem__), final_norm=Norm("model.norm", hidden), rotary_dim=rotary_dim
    )


def _rotates(raw: RawConfig) -> bool:
    """Whether a rope base is stated: the released models state none."""
    section = rope_parameters(raw)
    return raw.has("rope_theta") or (section is not None and section.has("rope_theta"))


def _delta_net(raw: RawConfig, dims: Dimensions) -> GatedDeltaNet:
    """The delta net; keys are three quarters of hidden_size / heads wide and values twice that, unless stated."""
    key_heads = raw.integer("linear_num_key_heads", default=dims.num_attention_heads, minimum=1, maximum=1 << 14)
    value_heads = raw.integer("linear_num_value_heads", default=dims.num_attention_heads, minimum=1, maximum=1 << 14)
    if value_heads % key_heads:
        raise raw.error(
            "linear_num_value_heads", f"is {value_heads}, not a multiple of linear_num_key_heads {key_heads}"
        )
    key_dim = raw.integer(
        "linear_key_head_dim", default=max(1, 3 * dims.hidden_size // (4 * key_heads)), minimum=1, maximum=1 << 14
    )
    return GatedDeltaNet(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_head_dim=key_dim,
        value_head_dim=raw.integer("linear_value_head_dim", default=2 * key_dim, minimum=1, maximum=1 << 15),
        conv_kernel=raw.integer("linear_conv_kernel_dim", default=4, minimum=1, maximum=1 << 10),
        layout="separate",
        state_dtype=read_state_dtype(raw),
        output="o_proj",
        norm="o_norm",
    )
