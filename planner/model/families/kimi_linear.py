"""Kimi Linear, and the text part of Kimi K3: three layers of Kimi Delta Attention to one of MLA without positions.

`linear_attn_config` lists the layers, counted from one. Kimi K3 adds to Kimi Linear an output gate on MLA, a full-rank
gate on KDA, experts that work on `routed_expert_hidden_size` channels between two projections, and learned mixing of
earlier blocks into each layer (`attn_res_block_size`).

Sources: Kimi Linear (arXiv 2510.26692) and Kimi K3 (arXiv 2607.24653) reports; transformers 5.24
configuration_kimi_linear, modeling_kimi_linear; vLLM models/kimi_linear.py, models/kimi_k3.py (latent projections,
low-rank bottlenecks and block mixing whole on every GPU).
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dimensions
from planner.model.families.recurrent import FULL, LINEAR, check_layer_types, refuse_unless, stack
from planner.model.kinds.delta import KimiDelta
from planner.model.kinds.feed_forward import Mlp, MlpNames, Moe, MoeNames
from planner.model.kinds.latent import LatentAttention
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, linear, vocabulary_matrix

_DENSE, _SPARSE = "dense", "sparse"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a kimi_linear config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    refuse_unless(raw, "mla_use_nope", True)
    refuse_unless(raw, "moe_layer_freq", 1)
    refuse_unless(raw, "num_nextn_predict_layers", 0)
    dims = read_dimensions(raw, head_dim_default=1)  # MLA has head sizes of its own
    dims = replace(
        dims,
        max_position_embeddings=raw.integer(
            "model_max_length", default=dims.max_position_embeddings, minimum=1, maximum=1 << 31
        ),
    )
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    delta, attention = _delta(raw), _attention(raw, dims)
    dense, moe = _dense(raw), _moe(raw)
    latent = raw.optional_integer("routed_expert_hidden_size", minimum=1)
    mixes_blocks = raw.optional_integer("attn_res_block_size", minimum=1) is not None
    norms: tuple[Norm, ...] = (Norm("input_layernorm", hidden), Norm("post_attention_layernorm", hidden))
    mixing: tuple[Tensor, ...] = ()
    if mixes_blocks:
        norms += (Norm("self_attention_res_norm", hidden), Norm("mlp_res_norm", hidden))
        mixing = linear("self_attention_res_proj", 1, hidden, Role.OTHER)
        mixing += linear("mlp_res_proj", 1, hidden, Role.OTHER)
    with_latent = _latent_projections(hidden, latent, has_norm=raw.flag("latent_moe_use_norm", default=False))

    def make(key: tuple[str, str]) -> Layer:
        kind, feed_forward = key
        return Layer(
            mixers=(attention if kind == FULL else delta,),
            feed_forward=moe if feed_forward == _SPARSE else dense,
            norms=norms,
            extra=mixing + (with_latent if feed_forward == _SPARSE else ()),
        )

    layers = stack(zip(_layer_types(raw, count), _mlp_layer_types(raw, count), strict=True), make)
    head: tuple[Tensor, ...] = Norm("model.norm", hidden).tensors()
    if mixes_blocks:
        head += Norm("model.output_attn_res_norm", hidden).tensors()
        head += linear("model.output_attn_res_proj", 1, hidden, Role.OTHER)
    if not dims.tie_word_embeddings:
        head += (vocabulary_matrix("lm_head.weight", dims.vocab_size, hidden, Role.LM_HEAD),)
    return assemble(raw, dims, layers, final_norm=None, head=head)


def _delta_section(raw: RawConfig) -> RawConfig:
    """The keys of the delta layers: a section of their own, or none."""
    return raw.section("linear_attn_config") or RawConfig({}, path=f"{raw.path}: linear_attn_config")


def _layer_types(raw: RawConfig, count: int) -> list[str]:
    """The list, or the section's two lists of layers from one; absent, attention in every fourth layer but the first.

    Raises:
        ConfigError: lists that do not name each layer once.
    """
    types = raw.texts("layer_types", length=count)
    if types is not None:
        return check_layer_types(raw, "layer_types", types, (LINEAR, FULL))
    section = _delta_section(raw)
    full, linear_layers = section.integers("full_attn_layers", minimum=1), section.integers("kda_layers", minimum=1)
    if full is None or linear_layers is None:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(count)]
    if sorted(full + linear_layers) != list(range(1, count + 1)):
        raise section.error("full_attn_layers", f"and kda_layers do not name each of the layers 1 to {count} once")
    attends = set(full)
    return [FULL if index + 1 in attends else LINEAR for index in range(count)]


def _mlp_layer_types(raw: RawConfig, count: int) -> list[str]:
    """Which layers have experts: the list, or all after the first few."""
    types = raw.texts("mlp_layer_types", length=count)
    first_sparse = raw.integer("first_k_dense_replace", default=1)
    if types is not None:
        return check_layer_types(raw, "mlp_layer_types", types, (_DENSE, _SPARSE))
    return [_DENSE if index < first_sparse else _SPARSE for index in range(count)]


def _delta(raw: RawConfig) -> KimiDelta:
    section = _delta_section(raw)

    def size(inside: str, outside: str, default: int) -> int:
        outer = raw.integer(outside, default=default, minimum=1, maximum=1 << 14)
        return section.integer(inside, default=outer, minimum=1, maximum=1 << 14)

    head_dim = size("head_dim", "linear_head_dim", 128)
    # with a bounded decay the published A_log has one entry a channel
    bounded = section.has("gate_lower_bound")
    return KimiDelta(
        num_heads=size("num_heads", "linear_num_heads", 32),
        head_dim=head_dim,
        conv_kernel=size("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
        full_rank_gate=section.flag("use_full_rank_gate", default=False),
        decay_size=head_dim if bounded else None,
    )


def _attention(raw: RawConfig, dims: Dimensions) -> LatentAttention:
    return LatentAttention(
        num_attention_heads=dims.num_attention_heads,
        q_lora_rank=raw.optional_integer("q_lora_rank", minimum=1, maximum=1 << 20),
        kv_lora_rank=raw.integer("kv_lora_rank", default=512, minimum=1, maximum=1 << 20),
        qk_nope_head_dim=raw.integer("qk_nope_head_dim", default=128, minimum=1, maximum=1 << 14),
        qk_rope_head_dim=raw.integer("qk_rope_head_dim", default=64, maximum=1 << 14),
        v_head_dim=raw.integer("v_head_dim", default=128, minimum=1, maximum=1 << 14),
        rotary=False,
        bias=raw.flag("attention_bias", default=False),
        output_gate=raw.flag("mla_use_output_gate", default=False),
    )


def _dense(raw: RawConfig) -> Mlp:
    return Mlp(
        intermediate_size=raw.integer("intermediate_size", default=9216, minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )


def _moe(raw: RawConfig) -> Moe:
    experts = raw.integer("num_experts", "num_local_experts", default=256, minimum=1, maximum=1 << 16)
    inner = raw.integer("moe_intermediate_size", default=1024, minimum=1, maximum=1 << 20)
    shared = raw.integer("num_shared_experts", "n_shared_experts", default=1, maximum=1 << 10)
    activation = raw.text("hidden_act", default="silu")
    return Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer(
            "num_experts_per_token", "num_experts_per_tok", default=8, minimum=1, maximum=experts
        ),
        moe_intermediate_size=inner,
        activation=activation,
        correction_bias=True,
        shared=Mlp(
            intermediate_size=shared * inner,
            activation=activation,
            role=Role.SHARED_EXPERT,
            names=MlpNames(block="shared_experts"),
        )
        if shared
        else None,
        expert_input_size=raw.optional_integer("routed_expert_hidden_size", minimum=1),
        names=MoeNames(block="block_sparse_moe"),
    )


def _latent_projections(hidden_size: int, latent: int | None, *, has_norm: bool) -> tuple[Tensor, ...]:
    """What takes the residual stream to the experts' width and back, whole on every GPU."""
    if latent is None:
        return ()
    found = linear("block_sparse_moe.routed_expert_down_proj", latent, hidden_size, Role.MLP)
    if has_norm:
        found += Norm("block_sparse_moe.routed_expert_norm", latent).tensors()
    return found + linear("block_sparse_moe.routed_expert_up_proj", hidden_size, latent, Role.MLP)
