"""DeepSeek-V4: compressed attention, hyper-connections in place of the residual, experts in every layer.

`hc_mult` residual streams are mixed before and after every block by a small fp32 projection; the first layers choose
experts by a table over the vocabulary (`num_hash_layers`) instead of scores.

Sources: transformers 5.24 configuration_ and modeling_deepseek_v4; vLLM 0.20.0 models/deepseek_v4.py,
deepseek_v4_mtp.py. Names are the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, has_head, layers_of, read_dimensions, refuse
from planner.model.families.experts import draft_count, read_expert_counts, read_width, shared_experts
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.compressed import CompressedAttention
from planner.model.kinds.feed_forward import Moe, MoeNames
from planner.model.rope import RopeTable, rope_table
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, linear, vocabulary_matrix

_SIZES: Final = {
    "vocab_size": 129280,
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1048576,
}
_RATIOS: Final = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
_HASHED, _SCORED = "hash_moe", "moe"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a deepseek_v4 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    refuse_unless(raw, "num_key_value_heads", 1)
    refuse_unless(raw, "attention_bias", False)
    refuse_unless(raw, "mlp_bias", False)
    dims = read_dimensions(raw, head_dim_default=512, defaults=_SIZES)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    streams = raw.integer("hc_mult", default=4, minimum=1, maximum=64)
    attention = _attention(raw, dims)
    moe, active = _moe(raw), raw.integer("num_experts_per_tok", default=6, minimum=1)
    # int32 in vLLM, of the same size as float32
    table = Tensor("ffn.gate.tid2eid", (dims.vocab_size, active), Role.ROUTER, dtype="float32", buffer=True)
    connections = (*_connection("hc_attn", streams, hidden), *_connection("hc_ffn", streams, hidden))

    def layer(key: tuple[int, bool]) -> Layer:
        ratio, hashed = key
        return Layer(
            mixers=(replace(attention, compress_ratio=ratio),),
            feed_forward=replace(moe, correction_bias=not hashed),
            norms=(Norm("attn_norm", hidden), Norm("ffn_norm", hidden)),
            extra=(*connections, table) if hashed else connections,
        )

    drafts = draft_count(raw, default=1)
    kinds = list(zip(_ratios(raw, count), _hashed(raw, count), strict=True))
    raw.has("index_topk", "num_hash_layers", "n_group")
    head = (*Norm("norm", hidden).tensors(), *_head_connection(streams, hidden))
    if has_head(raw) and not dims.tie_word_embeddings:
        head += (vocabulary_matrix("head.weight", dims.vocab_size, hidden, Role.LM_HEAD),)
    spec = assemble(
        raw,
        dims,
        layers_of(kinds, layer),
        final_norm=None,
        head=head,
        layer_prefix="layers",
        embedding_name="embed.weight",
        rope_tables=_rope_tables(raw, dims, attention.rotary_dim),
    )
    return replace(
        spec,
        draft_layers=(_draft(layer((0, False)), streams, hidden),) * drafts,
        quantization_config=_quantization(raw, spec),
    )


def _quantization(raw: RawConfig, spec: ModelSpec) -> Mapping[str, object] | None:
    """The config's quantisation, with `expert_dtype`, which lies beside it: "fp4" (also when missing) is MXFP4.

    `deepseek_ref`, the form of the fp8 copies, has no such key: its experts are in fp8 like the rest.

    Source: vLLM 0.24.0 models/deepseek_v4/quant_config.py.

    Raises:
        UnsupportedArchitecture: neither fp4 nor fp8.
    """
    config = spec.quantization_config
    if config is None or config.get("quant_method") != "fp8":
        return config
    reference = raw.text("model_type", default="deepseek_v4") == "deepseek_ref"
    experts = raw.text("expert_dtype", default="fp8" if reference else "fp4")
    if experts not in ("fp4", "fp8"):
        raise refuse(raw, "expert_dtype", f"{experts[:40]!r} is not understood; expected fp4 or fp8")
    return {**config, "expert_dtype": experts}


def _attention(raw: RawConfig, dims: Dimensions) -> CompressedAttention:
    rotary = raw.number("partial_rotary_factor", default=64 / 512)
    if not 0 <= rotary <= 1:
        raise raw.error("partial_rotary_factor", f"is {rotary}; expected 0 to 1")
    groups = raw.integer("o_groups", default=8, minimum=1, maximum=dims.num_attention_heads)
    if dims.num_attention_heads % groups:
        raise raw.error("o_groups", f"is {groups}, which does not divide num_attention_heads")
    return CompressedAttention(
        num_attention_heads=dims.num_attention_heads,
        head_dim=dims.head_dim,
        rotary_dim=raw.integer("qk_rope_head_dim", default=int(dims.head_dim * rotary), maximum=dims.head_dim),
        q_lora_rank=raw.integer("q_lora_rank", default=1024, minimum=1, maximum=1 << 16),
        o_groups=groups,
        o_lora_rank=raw.integer("o_lora_rank", default=1024, minimum=1, maximum=1 << 16),
        sliding_window=raw.integer("sliding_window", default=128, minimum=1),
        index_heads=raw.integer("index_n_heads", default=64, minimum=1, maximum=1 << 14),
        index_head_dim=raw.integer("index_head_dim", default=128, minimum=1, maximum=1 << 14),
    )


def _moe(raw: RawConfig) -> Moe:
    activation = raw.text("hidden_act", default="silu")
    experts, active = read_expert_counts(
        raw, ("n_routed_experts", "num_local_experts"), ("num_experts_per_tok",), defaults=(256, 6)
    )
    refuse_unless(raw, "n_shared_experts", 1)
    width = read_width(raw, "moe_intermediate_size", "intermediate_size", default=2048)
    return Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        correction_bias=True,
        shared=shared_experts(1, width, activation=activation),
        names=MoeNames(block="ffn", correction="gate.bias"),
    )


def _ratios(raw: RawConfig, count: int) -> list[int]:
    """Tokens of one compressed vector in each layer (0: none): `layer_types`, else `compress_ratios`, else 128 and 4
    in turn after two of 128. The lists may go on with the draft layers.

    Raises:
        ConfigError: fewer entries than layers.
        UnsupportedArchitecture: a type or a ratio that is not understood.
    """
    rates = raw.section("compress_rates")
    if rates is not None:
        for kind in ("compressed_sparse_attention", "heavily_compressed_attention"):
            refuse_unless(rates, kind, _RATIOS[kind])
    refuse_unless(raw, "compress_rate_csa", _RATIOS["compressed_sparse_attention"])
    refuse_unless(raw, "compress_rate_hca", _RATIOS["heavily_compressed_attention"])
    types = raw.texts("layer_types")
    ratios = raw.integers("compress_ratios")
    if types is not None:
        unknown = [kind for kind in types if kind not in _RATIOS]
        if unknown:
            raise refuse(raw, "layer_types", f"{unknown[0][:40]!r} is not understood; expected {', '.join(_RATIOS)}")
        ratios = [_RATIOS[kind] for kind in types]
    if ratios is None:
        return [4 if index > 2 and index % 2 else 128 for index in range(count)]
    if len(ratios) < count:
        raise raw.error("compress_ratios", f"has {len(ratios)} entries; expected {count}")
    for ratio in ratios:
        if ratio not in _RATIOS.values():
            raise refuse(raw, "compress_ratios", f"holds {ratio}; only 0, 4 and 128 are understood")
    return ratios[:count]


def _hashed(raw: RawConfig, count: int) -> list[bool]:
    """Which layers choose experts by the token: `mlp_layer_types`, else the first `num_hash_layers`."""
    types = raw.texts("mlp_layer_types")
    if types is None:
        first = raw.integer("num_hash_layers", default=3)
        return [index < first for index in range(count)]
    if len(types) < count:
        raise raw.error("mlp_layer_types", f"has {len(types)} entries; expected {count}")
    for kind in types:
        if kind not in (_HASHED, _SCORED):
            raise refuse(raw, "mlp_layer_types", f"{kind[:40]!r} is not understood; expected {_HASHED} or {_SCORED}")
    return [kind == _HASHED for kind in types[:count]]


def _connection(name: str, streams: int, hidden_size: int) -> tuple[Tensor, ...]:
    """Weights before (n), after (n) and between (n x n) the n streams, from all of them side by side; in fp32."""
    size = (2 + streams) * streams
    return (
        Tensor(f"{name}_fn", (size, streams * hidden_size), Role.OTHER, dtype="float32"),
        Tensor(f"{name}_base", (size,), Role.OTHER, dtype="float32"),
        Tensor(f"{name}_scale", (3,), Role.OTHER, dtype="float32"),
    )


def _head_connection(streams: int, hidden_size: int) -> tuple[Tensor, ...]:
    """What joins the streams before the head; in fp32."""
    return (
        Tensor("hc_head_fn", (streams, streams * hidden_size), Role.OTHER, dtype="float32"),
        Tensor("hc_head_base", (streams,), Role.OTHER, dtype="float32"),
        Tensor("hc_head_scale", (1,), Role.OTHER, dtype="float32"),
    )


def _draft(layer: Layer, streams: int, hidden_size: int) -> Layer:
    """A layer that sees its window only, behind one matrix for the embedding and one for the stack's output."""
    projections = (
        *linear("e_proj", hidden_size, hidden_size, Role.DRAFT),
        *linear("h_proj", hidden_size, hidden_size, Role.DRAFT),
    )
    return replace(
        layer,
        norms=(
            Norm("enorm", hidden_size),
            Norm("hnorm", hidden_size),
            *layer.norms,
            Norm("norm", hidden_size),
        ),
        extra=(*layer.extra, *projections, *_head_connection(streams, hidden_size)),
    )


def _rope_tables(raw: RawConfig, dims: Dimensions, rotary_dim: int) -> tuple[RopeTable, ...]:
    """Two bases: one for layers that see their window only, one for those that compress; both allocated alike, in fp32.

    Source: vLLM 0.24.0 rotary_embedding/deepseek_scaling_rope.py DeepseekV4ScalingRotaryEmbedding.
    """
    table = rope_table(raw, rotary_dim=rotary_dim, max_position_embeddings=dims.max_position_embeddings)
    return (replace(table, dtype="float32"),) * 2
