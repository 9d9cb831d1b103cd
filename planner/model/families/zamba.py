"""Zamba and Zamba2: Mamba layers, some of them behind a transformer block whose weights they all share.

The block reads the residual stream beside the embedding, so its attention is twice as wide. It runs with a cache of
its own at every hybrid layer; its weights are listed once, at the first hybrid layer that uses them.

zamba   Mamba 1 with stacked heads, one shared block, no positions
zamba2  Mamba 2, `num_mem_blocks` shared blocks in turn, each hybrid layer with low-rank adapters of its own

Source: transformers 5.24 configuration_ and modeling_ zamba, zamba2; vLLM 0.19.1 models/zamba2.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dimensions
from planner.model.families.mamba import read_time_step_rank
from planner.model.families.recurrent import LINEAR, check_layer_types, read_state_dtype
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.kinds.mamba import Mamba1, Mamba2
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Part, Role, Tensor, linear, whole

_HYBRID = "hybrid"
_LONG_CONTEXT = 16_384  # what Zamba2's use_long_context stands for


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a zamba or zamba2 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    is_first = raw.text("model_type", default="zamba2") == "zamba"
    dims = _dimensions(raw)
    mamba = _mamba1(raw, dims.hidden_size) if is_first else _mamba2(raw, dims.hidden_size)
    rotary_dim = dims.head_dim if not is_first and raw.flag("use_mem_rope", default=False) else 0
    block = "shared_transf" if is_first else "shared_transformer"
    attention = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=rotary_dim,
        input_size=2 * dims.hidden_size,
        names=AttentionNames(block=f"{block}.self_attn"),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", default=4 * dims.hidden_size, minimum=1),
        fused=not is_first,
        activation=raw.text("hidden_act", default="gelu"),
        bias=False if is_first else raw.flag("add_bias_linear", default=False),
        names=MlpNames(block=f"{block}.feed_forward"),
    )
    plain = Layer(mixers=(mamba,), feed_forward=None, norms=(Norm("input_layernorm", dims.hidden_size),))
    nested = replace(mamba, block="mamba_decoder.mamba")
    blocks = 1 if is_first else raw.integer("num_mem_blocks", default=1, minimum=1, maximum=1 << 10)
    layers: list[Layer] = []
    hybrids = 0
    for kind in _kinds(raw, dims.num_hidden_layers, is_first):
        if kind == LINEAR:
            layers.append(plain)
            continue
        owner = hybrids < blocks
        extra = linear("linear", dims.hidden_size, dims.hidden_size, Role.OTHER)
        if not is_first:
            extra += _adapters(raw, dims, mlp, hybrids)
        layers.append(
            Layer(
                mixers=(replace(attention, owns_weights=owner), nested),
                feed_forward=replace(mlp, owns_weights=owner),
                norms=(
                    Norm(f"{block}.input_layernorm", 2 * dims.hidden_size, weight=owner),
                    Norm(f"{block}.pre_ff_layernorm", dims.hidden_size, weight=owner),
                    Norm("mamba_decoder.input_layernorm", dims.hidden_size),
                ),
                extra=extra,
            )
        )
        hybrids += 1
    return assemble(
        raw,
        dims,
        tuple(layers),
        final_norm=Norm("model.final_layernorm", dims.hidden_size),
        rotary_dim=rotary_dim if hybrids else 0,
    )


def _dimensions(raw: RawConfig) -> Dimensions:
    """Sizes with the block's own head: twice the hidden size over the heads."""
    hidden = raw.integer("hidden_size", minimum=1, maximum=1 << 20)
    heads = raw.integer("num_attention_heads", minimum=1, maximum=1 << 14)
    if 2 * hidden % heads:
        raise raw.error("num_attention_heads", f"is {heads}, which does not divide 2 x hidden_size = {2 * hidden}")
    head_dim = 2 * hidden // heads
    for field, expected in (("attention_head_dim", head_dim), ("attention_hidden_size", 2 * hidden)):
        if raw.integer(field, default=expected) != expected:
            raise raw.error(field, f"is not {expected}, as 2 x hidden_size makes it; nothing else is understood")
    dims = read_dimensions(raw, tie_default=True, head_dim_default=head_dim)
    if dims.head_dim != head_dim:
        raise raw.error("head_dim", f"is {dims.head_dim}, not {head_dim} as 2 x hidden_size / num_attention_heads")
    if raw.flag("use_long_context", default=False):
        dims = replace(dims, max_position_embeddings=_LONG_CONTEXT)
    return dims


def _kinds(raw: RawConfig, count: int, is_first: bool) -> list[str]:
    """Which layers are hybrid: the list, or the published pattern of each model.

    Raises:
        ConfigError: no list, and a number of layers that the pattern does not have.
    """
    types = raw.texts("layers_block_type", "layer_types", length=count)
    if types is not None:
        types = [LINEAR if kind == "mamba" else kind for kind in types]
        return check_layer_types(raw, "layers_block_type", types, (LINEAR, _HYBRID))
    if is_first:
        period = raw.integer("attn_layer_period", default=6, minimum=1)
        offset = raw.integer("attn_layer_offset", default=4)
        rest = [_HYBRID if index % period == offset else LINEAR for index in range(count - 3)]
        types = [LINEAR, LINEAR, _HYBRID, *rest]
    else:
        types = [LINEAR] + ([LINEAR] * 5 + [_HYBRID]) * 7 + [LINEAR] * 4 + [_HYBRID] + [LINEAR] * 3
        types += [_HYBRID] + [LINEAR] * 2
    if len(types) != count:
        raise raw.error("layers_block_type", f"is missing, and num_hidden_layers {count} has no known pattern")
    return types


def _adapters(raw: RawConfig, dims: Dimensions, mlp: Mlp, index: int) -> tuple[Tensor, ...]:
    """The low-rank matrices that this hybrid layer adds to the shared block's projections."""
    rank = raw.integer("adapter_rank", default=128, minimum=1, maximum=1 << 16)
    wide, inner = 2 * dims.hidden_size, mlp.intermediate_size
    gate_up = (Part(inner, inner), Part(inner, inner))
    found = _adapter(
        f"shared_transformer.feed_forward.gate_up_proj_adapter_list.{index}", dims.hidden_size, rank, gate_up
    )
    if raw.flag("use_shared_attention_adapter", default=False):
        for name in ("q", "k", "v"):
            name = f"shared_transformer.self_attn.linear_{name}_adapter_list.{index}"
            found += _adapter(name, wide, rank, whole(wide, dims.num_attention_heads))
    return found


def _adapter(name: str, in_features: int, rank: int, column: tuple[Part, ...]) -> tuple[Tensor, ...]:
    out_features = sum(part.size for part in column)
    down = linear(f"{name}.0", rank, in_features, Role.OTHER, column=whole(rank))
    return down + linear(f"{name}.1", out_features, rank, Role.OTHER, column=column)


def _mamba1(raw: RawConfig, hidden_size: int) -> Mamba1:
    inner = raw.integer("mamba_expand", default=2, minimum=1, maximum=64) * hidden_size
    heads = raw.integer("n_mamba_heads", default=2, minimum=1, maximum=1 << 16)
    if inner % heads:
        raise raw.error("n_mamba_heads", f"is {heads}, which does not divide the inner width {inner}")
    return Mamba1(
        intermediate_size=inner,
        state_size=raw.integer("mamba_d_state", default=16, minimum=1, maximum=1 << 16),
        conv_kernel=raw.integer("mamba_d_conv", default=4, minimum=1, maximum=1 << 10),
        time_step_rank=read_time_step_rank(raw, hidden_size, "mamba_dt_rank"),
        use_bias=raw.flag("mamba_proj_bias", default=False),
        conv_bias=raw.flag("mamba_conv_bias", default=True),
        num_heads=heads,
        state_dtype=read_state_dtype(raw),
        block="mamba",
    )


def _mamba2(raw: RawConfig, hidden_size: int) -> Mamba2:
    inner = raw.integer("mamba_expand", default=2, minimum=1, maximum=64) * hidden_size
    heads = raw.integer("n_mamba_heads", default=8, minimum=1, maximum=1 << 16)
    groups = raw.integer("mamba_ngroups", default=1, minimum=1, maximum=heads)
    if inner % heads:
        raise raw.error("n_mamba_heads", f"is {heads}, which does not divide the inner width {inner}")
    if heads % groups:
        raise raw.error("mamba_ngroups", f"is {groups}, which does not divide n_mamba_heads {heads}")
    return Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        state_size=raw.integer("mamba_d_state", default=64, minimum=1, maximum=1 << 16),
        n_groups=groups,
        conv_kernel=raw.integer("mamba_d_conv", default=4, minimum=1, maximum=1 << 10),
        chunk_size=raw.integer("chunk_size", default=256, minimum=1, maximum=1 << 16),
        use_bias=raw.flag("add_bias_linear", default=False),
        state_dtype=read_state_dtype(raw),
        block="mamba",
    )
