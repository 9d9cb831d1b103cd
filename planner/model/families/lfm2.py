"""LFM2: short convolutions with an attention layer now and then; LFM2-MoE has experts after the first layers.

Source: transformers 5.24 configuration_ and modeling_ lfm2, lfm2_moe.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dimensions, read_rotary_dim
from planner.model.families.recurrent import FULL, check_layer_types, refuse_unless, stack
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames, Moe, MoeNames
from planner.model.kinds.short_conv import ShortConv
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_CONV = "conv"
_MLP_NAMES = MlpNames(block="feed_forward", gate="w1", up="w3", down="w2")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an lfm2 or lfm2_moe config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    dims = read_dimensions(raw, tie_default=True)
    count = dims.num_hidden_layers
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    for field in ("block_dim", "conv_dim", "conv_dim_out"):
        refuse_unless(raw, field, dims.hidden_size)
    conv = ShortConv(
        size=dims.hidden_size,
        kernel=raw.integer("conv_L_cache", default=3, minimum=1, maximum=1 << 10),
        bias=raw.flag("conv_bias", default=False),
    )
    attention = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=rotary_dim,
        query_norm=Norm("q_layernorm", dims.head_dim),
        key_norm=Norm("k_layernorm", dims.head_dim),
        names=AttentionNames(output="out_proj"),
    )
    norms = (Norm("operator_norm", dims.hidden_size), Norm("ffn_norm", dims.hidden_size))
    if raw.text("model_type", default="lfm2") == "lfm2_moe":
        dense = Mlp(intermediate_size=raw.integer("intermediate_size", default=7168, minimum=1), names=_MLP_NAMES)
        moe, first_sparse = _moe(raw), raw.integer("num_dense_layers", default=2)
    else:
        dense, moe, first_sparse = _adjusted_mlp(raw), None, count

    def make(key: tuple[str, bool]) -> Layer:
        kind, is_sparse = key
        return Layer(
            mixers=(attention if kind == FULL else conv,),
            feed_forward=moe if is_sparse else dense,
            norms=norms,
        )

    types = _layer_types(raw, dims)
    layers = stack(((kind, index >= first_sparse) for index, kind in enumerate(types)), make)
    return assemble(
        raw,
        dims,
        layers,
        final_norm=Norm("model.embedding_norm", dims.hidden_size),
        rotary_dim=rotary_dim if FULL in types else 0,
    )


def _layer_types(raw: RawConfig, dims: Dimensions) -> list[str]:
    """The list, or attention at `full_attn_idxs` (absent: everywhere)."""
    count = dims.num_hidden_layers
    indices = raw.integers("full_attn_idxs")
    types = raw.texts("layer_types", length=count)
    if types is None:
        attends = set(range(count) if indices is None else indices)
        if attends and max(attends) >= count:
            raise raw.error("full_attn_idxs", f"names layer {max(attends)} of {count}")
        types = [FULL if index in attends else _CONV for index in range(count)]
    return check_layer_types(raw, "layer_types", types, (FULL, _CONV))


def _adjusted_mlp(raw: RawConfig) -> Mlp:
    """LFM2 states a width that is cut to two thirds and rounded up, unless told otherwise."""
    inner = raw.integer("block_ff_dim", "intermediate_size", default=12_288, minimum=1)
    raw.has("intermediate_size")  # the same width under its other name
    if raw.flag("block_auto_adjust_ff_dim", default=True):
        inner = int(raw.number("block_ffn_dim_multiplier", default=1.0) * (2 * inner // 3))
        multiple = raw.integer("block_multiple_of", default=256, minimum=1, maximum=1 << 20)
        inner = -(-inner // multiple) * multiple
        if inner < 1:
            raise raw.error("block_ffn_dim_multiplier", f"leaves a width of {inner}")
    return Mlp(intermediate_size=inner, names=_MLP_NAMES)


def _moe(raw: RawConfig) -> Moe:
    experts = raw.integer("num_experts", default=32, minimum=1, maximum=1 << 16)
    return Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("num_experts_per_tok", default=4, minimum=1, maximum=experts),
        moe_intermediate_size=raw.integer("moe_intermediate_size", default=1792, minimum=1),
        correction_bias=raw.flag("use_expert_bias", default=True),
        names=MoeNames(block="feed_forward", correction="expert_bias"),
    )
