"""MiniMax-M3's decoder: GQA whose tokens an indexer chooses, experts beside one shared expert, three dense layers.

Every head has zero-centred norms on queries and keys, half of it rotated. The first three layers attend to everything
and have a dense MLP; the others keep one key of the indexer per token besides keys and values.

Source: transformers 5.24 models/minimax_m3_vl (MiniMaxM3VLTextConfig, modeling_). vLLM 0.19 lacks it, so the storage
format of the indexer's keys is that of DeepSeek-V3.2's.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, layers_of, read_dimensions
from planner.model.families.experts import DENSE, SPARSE, read_expert_counts, read_width, shared_experts
from planner.model.families.recurrent import FULL, check_layer_types, refuse_unless
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import FeedForward, Mlp, Moe
from planner.model.kinds.indexer import IndexedAttention, Indexer
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_DEFAULTS = {
    "vocab_size": 200_064,
    "hidden_size": 6144,
    "num_hidden_layers": 60,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "max_position_embeddings": 524_288,
}
_INDEXED = "minimax_m3_sparse"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a minimax_m3_vl_text config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    dims = read_dimensions(raw, head_dim_default=128, defaults=_DEFAULTS)
    for field, understood in (
        ("use_qk_norm", True),
        ("use_gemma_norm", True),
        ("qk_norm_type", "per_head"),
        ("attention_output_gate", False),
    ):
        refuse_unless(raw, field, understood)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    rotary_dim = raw.integer("rotary_dim", default=64, minimum=0, maximum=dims.head_dim)
    attention, indexed = _attentions(raw, dims.num_attention_heads, dims.num_key_value_heads, dims.head_dim, rotary_dim)
    dense, experts = _feed_forwards(raw)
    norms = (_norm("input_layernorm", hidden), _norm("post_attention_layernorm", hidden))

    def layer(key: tuple[bool, bool]) -> Layer:
        is_indexed, is_sparse = key
        feed_forward: FeedForward = experts if is_sparse else dense
        return Layer(mixers=(indexed if is_indexed else attention,), feed_forward=feed_forward, norms=norms)

    modules = raw.integer("num_mtp_modules", default=0, maximum=64)
    notes = (f"{modules} MTP module(s) of the checkpoint are not modelled",) if modules else ()
    return assemble(
        raw,
        dims,
        layers_of(list(zip(_indexed_layers(raw, count), _sparse_layers(raw, count), strict=True)), layer),
        final_norm=_norm("model.norm", hidden),
        rotary_dim=rotary_dim,
        notes=notes,
    )


def _attentions(
    raw: RawConfig, heads: int, key_value_heads: int, head_dim: int, rotary_dim: int
) -> tuple[Attention, IndexedAttention]:
    sparse = raw.section("sparse_attention_config")
    source = sparse if sparse is not None else raw
    indexer = Indexer(
        num_heads=source.integer("sparse_num_index_heads", "index_n_heads", default=4, minimum=1, maximum=1 << 12),
        head_dim=source.integer("sparse_index_dim", "index_head_dim", default=128, minimum=1, maximum=1 << 14),
    )
    query_norm, key_norm = _norm("q_norm", head_dim), _norm("k_norm", head_dim)
    attention = Attention(
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        query_norm=query_norm,
        key_norm=key_norm,
    )
    indexed = IndexedAttention(
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        query_norm=query_norm,
        key_norm=key_norm,
        indexer=indexer,
    )
    return attention, indexed


def _indexed_layers(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have an indexer: layer_types, else sparse_attention_config.sparse_attention_freq, else none."""
    types = raw.texts("layer_types", length=count)
    if types is not None:
        return [kind == _INDEXED for kind in check_layer_types(raw, "layer_types", types, (FULL, _INDEXED))]
    sparse = raw.section("sparse_attention_config")
    if sparse is None:
        return [False] * count
    refuse_unless(sparse, "use_sparse_attention", True)
    sparse.has("sparse_disable_index_value")  # no value projection in the indexer, as published
    chosen = sparse.integers("sparse_attention_freq", length=count)
    return [False] * count if chosen is None else [bool(value) for value in chosen]


def _sparse_layers(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have experts: mlp_layer_types, else moe_layer_freq (one entry a layer), else all."""
    types = raw.texts("mlp_layer_types", length=count)
    if types is not None:
        return [kind == SPARSE for kind in check_layer_types(raw, "mlp_layer_types", types, (DENSE, SPARSE))]
    chosen = raw.integers("moe_layer_freq", length=count)
    return [True] * count if chosen is None else [bool(value) for value in chosen]


def _feed_forwards(raw: RawConfig) -> tuple[Mlp, Moe]:
    activation = raw.text("hidden_act", default="silu")
    total, active = read_expert_counts(raw, ["num_local_experts"], ["num_experts_per_tok"], defaults=(128, 4))
    shared_width = read_width(raw, "shared_intermediate_size", default=3072)
    shared = shared_experts(raw.integer("n_shared_experts", default=1, maximum=64), shared_width, activation=activation)
    dense = Mlp(
        intermediate_size=read_width(raw, "dense_intermediate_size", default=12_288), fused=True, activation=activation
    )
    moe = Moe(
        num_experts=total,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(raw, "intermediate_size", default=3072),
        activation=activation,
        shared=None if shared is None else replace(shared, fused=True),
    )
    return dense, moe


def _norm(name: str, size: int) -> Norm:
    """A zero-centred RMSNorm: the scale is 1 + weight."""
    return Norm(name, size, "rms_offset")
