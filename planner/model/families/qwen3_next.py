"""Qwen3-Next and the text part of Qwen3.5 / 3.6: three gated delta net layers to one of gated attention.

qwen3_next   MoE with a gated shared expert, zero-centred norms, partly rotary attention with an output gate
qwen3_5      the same mixers with the delta net's projections split, dense MLP
qwen3_5_moe  likewise with the MoE

The multimodal wrappers of qwen3_5 and qwen3_5_moe build their text part with `text_spec`.

Sources: transformers 5.24 configuration_ and modeling_ qwen3_next, qwen3_5, qwen3_5_moe; vLLM 0.19.1
models/qwen3_next.py, qwen3_5.py, qwen3_next_mtp.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    read_dimensions,
    read_rotary_dim,
)
from planner.model.families.recurrent import FULL, LINEAR, check_layer_types, read_state_dtype, refuse_unless, stack
from planner.model.kinds.attention import Attention
from planner.model.kinds.delta import GatedDeltaNet
from planner.model.kinds.feed_forward import FeedForward, Mlp, MlpNames, Moe
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, linear


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a qwen3_next, qwen3_5_text or qwen3_5_moe_text config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    return text_spec(raw)


def text_spec(raw: RawConfig, *, prefix: str = "model", tie_word_embeddings: bool | None = None) -> ModelSpec:
    """The decoder of a text config, alone or inside a multimodal wrapper.

    Args:
        raw: the text config (a wrapper's `text_config`).
        prefix: module that holds the embedding and the layers ("model.language_model" in a wrapper).
        tie_word_embeddings: the wrapper's own setting, which wins over the text config's.

    Raises:
        ConfigError, UnsupportedArchitecture: as `build`.
    """
    dims = read_dimensions(raw, head_dim_default=256)
    if tie_word_embeddings is not None:
        dims = replace(dims, tie_word_embeddings=tie_word_embeddings)
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.25)
    layers = text_layers(raw, dims, rotary_dim)
    draft_layers, draft_tensors = _drafts(raw, dims, rotary_dim)
    spec = assemble(
        raw,
        dims,
        layers,
        final_norm=_norm(f"{prefix}.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
        layer_prefix=f"{prefix}.layers",
        embedding_name=f"{prefix}.embed_tokens.weight",
    )
    return replace(spec, draft_layers=draft_layers, draft_tensors=draft_tensors)


def text_layers(raw: RawConfig, dims: Dimensions, rotary_dim: int) -> tuple[Layer, ...]:
    """The decoder layers of a text config."""
    refuse_unless(raw, "use_sliding_window", False)
    refuse_unless(raw, "attn_output_gate", True)
    count = dims.num_hidden_layers
    types = raw.texts("layer_types", length=count)
    if types is None:
        interval = raw.integer("full_attention_interval", default=4, minimum=1)
        types = [FULL if (index + 1) % interval == 0 else LINEAR for index in range(count)]
    check_layer_types(raw, "layer_types", types, (LINEAR, FULL))
    attention, delta = _attention(raw, dims, rotary_dim), _delta_net(raw)
    dense, moe = _dense(raw), _moe(raw)
    sparse = _sparse_layers(raw, count, has_experts=moe is not None)
    if not all(sparse) and dense is None:
        raise raw.error("intermediate_size", "is missing; it is needed for the layers without experts")

    def make(key: tuple[str, bool]) -> Layer:
        kind, is_sparse = key
        feed_forward: FeedForward | None = moe if is_sparse else dense
        return Layer(
            mixers=(attention if kind == FULL else delta,), feed_forward=feed_forward, norms=_norms(dims.hidden_size)
        )

    return stack(zip(types, sparse, strict=True), make)


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
        query_norm=_norm("q_norm", dims.head_dim),
        key_norm=_norm("k_norm", dims.head_dim),
        gated_query=True,
    )


def _delta_net(raw: RawConfig) -> GatedDeltaNet:
    key_heads = raw.integer("linear_num_key_heads", default=16, minimum=1, maximum=1 << 14)
    value_heads = raw.integer("linear_num_value_heads", default=32, minimum=1, maximum=1 << 14)
    if value_heads % key_heads:
        raise raw.error(
            "linear_num_value_heads", f"is {value_heads}, not a multiple of linear_num_key_heads {key_heads}"
        )
    return GatedDeltaNet(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_head_dim=raw.integer("linear_key_head_dim", default=128, minimum=1, maximum=1 << 14),
        value_head_dim=raw.integer("linear_value_head_dim", default=128, minimum=1, maximum=1 << 14),
        conv_kernel=raw.integer("linear_conv_kernel_dim", default=4, minimum=1, maximum=1 << 10),
        layout="qkvz_ba" if raw.text("model_type", default="") == "qwen3_next" else "qkv_z_b_a",
        state_dtype=read_state_dtype(raw),
    )


def _dense(raw: RawConfig) -> Mlp | None:
    if not raw.has("intermediate_size"):
        return None
    activation = raw.text("hidden_act", default="silu")
    return Mlp(intermediate_size=raw.integer("intermediate_size", minimum=1), activation=activation)


def _moe(raw: RawConfig) -> Moe | None:
    if not raw.integer("num_experts", default=0, maximum=1 << 16):
        return None
    activation = raw.text("hidden_act", default="silu")
    experts = raw.integer("num_experts")
    shared = Mlp(
        intermediate_size=raw.integer("shared_expert_intermediate_size", default=512, minimum=1),
        activation=activation,
        role=Role.SHARED_EXPERT,
        names=MlpNames(block="shared_expert"),
    )
    return Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("num_experts_per_tok", minimum=1, maximum=experts),
        moe_intermediate_size=raw.integer("moe_intermediate_size", default=512, minimum=1),
        activation=activation,
        shared=shared,
        shared_gate=True,
    )


def _sparse_layers(raw: RawConfig, count: int, *, has_experts: bool) -> list[bool]:
    """Which layers have experts. Qwen3.5-MoE has them in every layer, whatever these keys say."""
    dense_layers = set(raw.integers("mlp_only_layers") or ())
    step = raw.integer("decoder_sparse_step", default=1, minimum=1)
    if not has_experts:
        return [False] * count
    if raw.text("model_type", default="") != "qwen3_next":
        if dense_layers or step != 1:
            raise raw.error("mlp_only_layers", "or decoder_sparse_step is set; Qwen3.5 has experts in every layer")
        return [True] * count
    return [index not in dense_layers and (index + 1) % step == 0 for index in range(count)]


def _drafts(raw: RawConfig, dims: Dimensions, rotary_dim: int) -> tuple[tuple[Layer, ...], tuple[Tensor, ...]]:
    """Multi-token prediction: full-attention layers with the same feed-forward, and what joins them to the stack.

    They use the model's own embedding and head. Published Qwen3-Next configs do not state how many they ship;
    like vLLM (qwen3_next_mtp.py) we take one.
    """
    is_next = raw.text("model_type", default="") == "qwen3_next"
    count = raw.integer("mtp_num_hidden_layers", "num_nextn_predict_layers", default=1 if is_next else 0, maximum=64)
    refuse_unless(raw, "mtp_use_dedicated_embeddings", False)
    if not count:
        return (), ()
    hidden = dims.hidden_size
    layer = Layer(
        mixers=(_attention(raw, dims, rotary_dim),), feed_forward=_moe(raw) or _dense(raw), norms=_norms(hidden)
    )
    tensors = linear("mtp.fc", hidden, 2 * hidden, Role.DRAFT)
    for name in ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"):
        tensors += _norm(name, hidden).tensors()
    return (layer,) * count, tensors


def _norms(hidden_size: int) -> tuple[Norm, ...]:
    return (_norm("input_layernorm", hidden_size), _norm("post_attention_layernorm", hidden_size))


def _norm(name: str, size: int) -> Norm:
    """A zero-centred RMSNorm: the scale is 1 + weight."""
    return Norm(name, size, "rms_offset")
