"""Hybrids that spell their Mamba 2 geometry `mamba_*`: Bamba, Granite 4, Falcon-H1.

bamba             Mamba 2 layers, attention at `attn_layer_indices`; half of each head is rotated
granitemoehybrid  Mamba 2 or attention by `layer_types`; experts beside a shared MLP, or the shared MLP alone
falcon_h1         Mamba 2 and attention side by side in every layer

Source: transformers 5.24 configuration_ and modeling_ of the three.
"""

from __future__ import annotations

from planner.errors import UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dimensions, read_rotary_dim
from planner.model.families.recurrent import FULL, LINEAR, check_layer_types, read_state_dtype, stack
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import FeedForward, Mlp, MlpNames, Moe, MoeNames
from planner.model.kinds.mamba import Mamba2
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role

_OLD_NAMES = {"mamba": LINEAR, "attention": FULL}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a bamba, granitemoehybrid or falcon_h1 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    model_type = raw.text("model_type", default="bamba")
    if model_type == "granitemoehybrid":
        return _granite(raw)
    return _falcon_h1(raw) if model_type == "falcon_h1" else _bamba(raw)


def _bamba(raw: RawConfig) -> ModelSpec:
    dims = read_dimensions(raw)
    rotary_dim = raw.integer(
        "attn_rotary_emb",
        default=read_rotary_dim(raw, dims.head_dim, fraction_default=0.5),
        maximum=dims.head_dim,
    )
    attention, mamba = _attention(raw, dims, rotary_dim), _mamba2(raw, dims.hidden_size)
    mlp = _mlp(raw)
    indices = set(raw.integers("attn_layer_indices") or ())
    if indices and max(indices) >= dims.num_hidden_layers:
        raise raw.error("attn_layer_indices", f"names layer {max(indices)} of {dims.num_hidden_layers}")
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("pre_ff_layernorm", dims.hidden_size))
    layers = stack(
        (index in indices for index in range(dims.num_hidden_layers)),
        lambda attends: Layer(mixers=(attention if attends else mamba,), feed_forward=mlp, norms=norms),
    )
    return assemble(
        raw, dims, layers, final_norm=Norm("model.final_layernorm", dims.hidden_size), rotary_dim=rotary_dim
    )


def _falcon_h1(raw: RawConfig) -> ModelSpec:
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    stated = "mamba_d_ssm" in raw.mapping()  # null means mamba_expand x hidden_size, absent 1,024
    mamba = _mamba2(
        raw,
        dims.hidden_size,
        inner=raw.optional_integer("mamba_d_ssm", minimum=1) if stated else 1024,
        output_bias=raw.flag("projectors_bias", default=False),
        gated_norm=raw.flag("mamba_rms_norm", default=False),
    )
    layer = Layer(
        mixers=(mamba, _attention(raw, dims, rotary_dim)),
        feed_forward=_mlp(raw),
        norms=(Norm("input_layernorm", dims.hidden_size), Norm("pre_ff_layernorm", dims.hidden_size)),
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("model.final_layernorm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def _granite(raw: RawConfig) -> ModelSpec:
    dims = read_dimensions(raw)
    positions = raw.text("position_embedding_type", default="nope")
    if positions not in ("nope", "rope"):
        raise UnsupportedArchitecture(
            f"{raw.path}: position_embedding_type {positions[:40]!r} is not understood; expected rope or nope",
            field="position_embedding_type",
        )
    rotary_dim = read_rotary_dim(raw, dims.head_dim) if positions == "rope" else 0
    types = raw.texts("layer_types", "layers_block_type", length=dims.num_hidden_layers)
    if types is None:
        types = [LINEAR] * dims.num_hidden_layers
    types = [_OLD_NAMES.get(kind, kind) for kind in types]
    check_layer_types(raw, "layer_types", types, (LINEAR, FULL))
    attention = _attention(raw, dims, rotary_dim)
    mamba = _mamba2(raw, dims.hidden_size) if LINEAR in types else None
    feed_forward = _granite_feed_forward(raw)
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))

    def make(kind: str) -> Layer:
        mixer = mamba if mamba is not None and kind == LINEAR else attention
        return Layer(mixers=(mixer,), feed_forward=feed_forward, norms=norms)

    return assemble(
        raw,
        dims,
        stack(types, make),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim if FULL in types else 0,
    )


def _granite_feed_forward(raw: RawConfig) -> FeedForward:
    activation = raw.text("hidden_act", default="silu")
    experts = raw.integer("num_local_experts", default=8, maximum=1 << 16)
    shared = Mlp(
        intermediate_size=raw.integer("shared_intermediate_size", default=1024, minimum=1),
        fused=True,
        activation=activation,
        role=Role.SHARED_EXPERT if experts else Role.MLP,
        names=MlpNames(block="shared_mlp", fused="input_linear", down="output_linear"),
    )
    if not experts:
        raw.has("intermediate_size", "num_experts_per_tok")  # of the absent experts
        return shared
    return Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("num_experts_per_tok", default=2, minimum=1, maximum=experts),
        moe_intermediate_size=raw.integer("intermediate_size", default=11008, minimum=1),
        activation=activation,
        shared=shared,
        names=MoeNames(block="", router="block_sparse_moe.router", experts="block_sparse_moe.experts"),
    )


def _attention(raw: RawConfig, dims: Dimensions, rotary_dim: int) -> Attention:
    bias = raw.flag("attention_bias", default=False)
    return Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=rotary_dim,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
    )


def _mlp(raw: RawConfig) -> Mlp:
    return Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
        bias=raw.flag("mlp_bias", default=False),
        names=MlpNames(block="feed_forward"),
    )


def _mamba2(
    raw: RawConfig,
    hidden_size: int,
    *,
    inner: int | None = None,
    output_bias: bool | None = None,
    gated_norm: bool = True,
) -> Mamba2:
    """The Mamba 2 block of `mamba_*` keys; `inner` is mamba_expand x hidden_size unless given.

    Raises:
        ConfigError: heads that do not make up the inner width, or groups that do not divide the heads.
    """
    if inner is None:
        inner = raw.integer("mamba_expand", default=2, minimum=1, maximum=64) * hidden_size
    else:
        raw.has("mamba_expand")  # stated beside mamba_d_ssm, which wins
    heads = raw.integer("mamba_n_heads", default=128, minimum=1, maximum=1 << 16)
    if inner % heads:
        raise raw.error("mamba_n_heads", f"is {heads}, which does not divide the inner width {inner}")
    head_dim = inner // heads
    if raw.raw("mamba_d_head") not in (None, "auto", head_dim):
        raise raw.error("mamba_d_head", f"x mamba_n_heads {heads} is not the inner width {inner}")
    groups = raw.integer("mamba_n_groups", default=1, minimum=1, maximum=heads)
    if heads % groups:
        raise raw.error("mamba_n_groups", f"is {groups}, which does not divide mamba_n_heads {heads}")
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        state_size=raw.integer("mamba_d_state", default=256, minimum=1, maximum=1 << 16),
        n_groups=groups,
        conv_kernel=raw.integer("mamba_d_conv", default=4, minimum=1, maximum=1 << 10),
        chunk_size=raw.integer("mamba_chunk_size", default=256, minimum=1, maximum=1 << 16),
        use_bias=raw.flag("mamba_proj_bias", default=False),
        conv_bias=raw.flag("mamba_conv_bias", default=True),
        output_bias=output_bias,
        gated_norm=gated_norm,
        state_dtype=read_state_dtype(raw),
        block="mamba",
    )
