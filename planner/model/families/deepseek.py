"""Latent attention with experts: DeepSeek-V2 and V3, Kimi K2, DeepSeek-V3.2, GLM-4.7-Flash, GLM-5, Mistral Small 4.

deepseek_v2    one expert layer in every `moe_layer_freq` after the first dense ones; queries may be uncompressed
deepseek_v3    (kimi_k2) a score correction at the router, one draft layer
deepseek_v32   an indexer in every layer chooses what attention sees
glm_moe_dsa    likewise, but some layers use the choice of an earlier one (`indexer_types`)
glm4_moe_lite  DeepSeek-V3's layer at GLM's sizes
mistral4       without the score correction

Sources: transformers 5.24 configuration_ and modeling_ of each; vLLM 0.19.1 models/deepseek_v2.py, deepseek_mtp.py;
vLLM 0.33.0 models/deepseek_v2.py (which layers have an indexer; draft layers always have their own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, layers_of, read_dimensions, refuse
from planner.model.families.experts import (
    draft_count,
    draft_layer,
    pre_norms,
    read_expert_counts,
    read_width,
    shared_experts,
    sparse_layers,
)
from planner.model.kinds.feed_forward import FeedForward, Mlp, Moe
from planner.model.kinds.indexer import Indexer
from planner.model.kinds.latent import LatentAttention
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_FULL, _SHARED = "full", "shared"
_LARGEST_RANK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """What a transformers 5.24 config class assumes for keys that are absent."""

    sizes: Mapping[str, int]
    intermediate_size: int
    moe_intermediate_size: int
    experts: int
    active: int | None
    shared: int
    dense: int
    q_lora_rank: int
    kv_lora_rank: int = 512
    nope: int = 128
    rope: int = 64
    value: int = 128
    drafts: int = 0
    correction: bool = True
    indexed: bool = False
    index_heads: int = 64


_V3: Final = _Class(
    sizes={
        "vocab_size": 129280,
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "max_position_embeddings": 4096,
    },
    intermediate_size=18432,
    moe_intermediate_size=2048,
    experts=256,
    active=8,
    shared=1,
    dense=3,
    q_lora_rank=1536,
    drafts=1,
)
_GLM: Final = {"vocab_size": 154880, "max_position_embeddings": 202752}
_CLASSES: Final[Mapping[str, _Class]] = {
    "deepseek_v2": _Class(
        sizes={
            "vocab_size": 102400,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
        intermediate_size=11008,
        moe_intermediate_size=1407,
        experts=64,
        active=None,
        shared=2,
        dense=0,
        q_lora_rank=1536,
        correction=False,
    ),
    "deepseek_v3": _V3,
    "kimi_k2": _V3,
    "deepseek_v32": replace(_V3, sizes={**_V3.sizes, "max_position_embeddings": 163840}, drafts=0, indexed=True),
    "glm4_moe_lite": _Class(
        sizes={**_GLM, "hidden_size": 2048, "num_hidden_layers": 47, "num_attention_heads": 20},
        intermediate_size=10240,
        moe_intermediate_size=1536,
        experts=64,
        active=4,
        shared=1,
        dense=1,
        q_lora_rank=768,
        nope=192,
        value=256,
    ),
    "glm_moe_dsa": _Class(
        sizes={**_GLM, "hidden_size": 6144, "num_hidden_layers": 78, "num_attention_heads": 64},
        intermediate_size=12288,
        moe_intermediate_size=2048,
        experts=256,
        active=8,
        shared=1,
        dense=3,
        q_lora_rank=2048,
        nope=192,
        value=256,
        indexed=True,
        index_heads=32,
    ),
    "mistral4": _Class(
        sizes={
            "vocab_size": 131072,
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "max_position_embeddings": 1048576,
        },
        intermediate_size=12288,
        moe_intermediate_size=2048,
        experts=128,
        active=4,
        shared=1,
        dense=0,
        q_lora_rank=1024,
        kv_lora_rank=256,
        nope=64,
        correction=False,
    ),
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a config of one of the model types above.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    assumed = _CLASSES.get(raw.text("model_type", default="deepseek_v3"), _V3)
    dims = read_latent_dimensions(raw, assumed.sizes)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    attention = _attention(raw, dims, assumed)
    indexer = _indexer(raw, assumed, attention) if assumed.indexed else None
    chooses = _choosing_layers(raw, count) if indexer is not None else [False] * count
    dense, moe = _feed_forwards(raw, assumed)

    def layer(key: tuple[bool, bool]) -> Layer:
        sparse, own_indexer = key
        return Layer(
            mixers=(replace(attention, indexer=indexer if own_indexer else None),),
            feed_forward=moe if sparse else dense,
            norms=pre_norms(hidden),
        )

    sparse = _sparse_layers(raw, count, assumed)
    drafts = draft_count(raw, "num_nextn_predict_layers", "num_mtp_layers", default=assumed.drafts)
    raw.has("ep_size", "qk_head_dim")  # the training run's, and a sum of the sizes above
    raw.has("index_topk", "index_topk_freq", "index_skip_topk_offset", "index_share_for_mtp_iteration")
    spec = assemble(
        raw,
        dims,
        layers_of(list(zip(sparse, chooses, strict=True)), layer),
        final_norm=Norm("model.norm", hidden),
        rotary_dim=attention.qk_rope_head_dim,
    )
    draft = draft_layer((replace(attention, indexer=indexer),), moe, hidden)
    return replace(spec, draft_layers=(draft,) * drafts)


def read_latent_dimensions(raw: RawConfig, defaults: Mapping[str, int]) -> Dimensions:
    """Sizes of a decoder whose keys and values are made from a latent: `num_key_value_heads` and `head_dim` mean
    nothing for what is stored, so they are not held against the other sizes.

    Raises:
        ConfigError: a size that is missing or out of range.
    """
    raw.has("num_key_value_heads", "head_dim", *defaults)
    plain = {key: value for key, value in raw.mapping().items() if key not in ("num_key_value_heads", "head_dim")}
    return read_dimensions(RawConfig(plain, path=raw.path), head_dim_default=1, defaults=defaults)


def read_latent_attention(
    raw: RawConfig,
    num_attention_heads: int,
    *,
    q_lora_rank: int | None,
    kv_lora_rank: int,
    nope: int,
    rope: int,
    value: int,
) -> LatentAttention:
    """The latent attention of a config; the keyword arguments are its class's own defaults.

    Raises:
        ConfigError: a rank or head size that is out of range.
    """
    rank = raw.optional_integer("q_lora_rank", minimum=1, maximum=_LARGEST_RANK)
    if rank is None and not raw.given("q_lora_rank"):
        rank = q_lora_rank
    return LatentAttention(
        num_attention_heads=num_attention_heads,
        q_lora_rank=rank,
        kv_lora_rank=raw.integer("kv_lora_rank", default=kv_lora_rank, minimum=1, maximum=_LARGEST_RANK),
        qk_nope_head_dim=raw.integer("qk_nope_head_dim", default=nope, minimum=1, maximum=1 << 14),
        qk_rope_head_dim=raw.integer("qk_rope_head_dim", default=rope, minimum=1, maximum=1 << 14),
        v_head_dim=raw.integer("v_head_dim", default=value, minimum=1, maximum=1 << 14),
        bias=raw.flag("attention_bias", default=False),
    )


def _attention(raw: RawConfig, dims: Dimensions, assumed: _Class) -> LatentAttention:
    attention = read_latent_attention(
        raw,
        dims.num_attention_heads,
        q_lora_rank=assumed.q_lora_rank,
        kv_lora_rank=assumed.kv_lora_rank,
        nope=assumed.nope,
        rope=assumed.rope,
        value=assumed.value,
    )
    if assumed.indexed and attention.q_lora_rank is None:
        raise raw.error("q_lora_rank", "is null; the indexer needs compressed queries")
    return attention


def _indexer(raw: RawConfig, assumed: _Class, attention: LatentAttention) -> Indexer:
    return Indexer(
        num_heads=raw.integer("index_n_heads", default=assumed.index_heads, minimum=1, maximum=1 << 14),
        head_dim=raw.integer("index_head_dim", default=128, minimum=1, maximum=1 << 14),
        query_size=attention.q_lora_rank,
    )


def _choosing_layers(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have an indexer of their own; the others attend to what the last one before them chose.

    `indexer_types`, else `index_topk_pattern` (F and S), else one in `index_topk_freq` from layer
    `index_skip_topk_offset` on, and all before it (transformers 5.24 GlmMoeDsaConfig). DeepSeek-V3.2 states none of
    them and has one in every layer.

    Raises:
        ConfigError: not one entry a layer.
        UnsupportedArchitecture: an entry that is neither full nor shared.
    """
    types = raw.texts("indexer_types", length=count)
    pattern = raw.raw("index_topk_pattern")
    if types is None and isinstance(pattern, str):
        types = [{"F": _FULL, "S": _SHARED}.get(letter, letter) for letter in pattern]
    elif types is None and pattern is not None:
        types = raw.texts("index_topk_pattern")
    if types is None:
        period = max(1, raw.integer("index_topk_freq", default=1))
        offset = raw.integer("index_skip_topk_offset", default=2)
        return [max(index - offset + 1, 0) % period == 0 for index in range(count)]
    if len(types) != count:
        raise raw.error("index_topk_pattern", f"has {len(types)} entries; expected {count}")
    for kind in types:
        if kind not in (_FULL, _SHARED):
            raise refuse(raw, "indexer_types", f"{kind[:40]!r} is not understood; expected full or shared")
    if types[0] != _FULL:
        raise raw.error("indexer_types", "begins with a shared layer, which has no earlier one to share with")
    return [kind == _FULL for kind in types]


def _sparse_layers(raw: RawConfig, count: int, assumed: _Class) -> list[bool]:
    """Which layers have experts. vLLM also skips layers by `moe_layer_freq`; every published model has 1."""
    if raw.integer("moe_layer_freq", default=1, minimum=1) != 1:
        raise refuse(raw, "moe_layer_freq", "is not 1; only experts in every layer after the dense ones are understood")
    return sparse_layers(raw, count, dense_default=assumed.dense)


def _feed_forwards(raw: RawConfig, assumed: _Class) -> tuple[FeedForward, Moe]:
    """The dense layers' MLP and the expert layers' block."""
    activation = raw.text("hidden_act", default="silu")
    bias = raw.flag("mlp_bias", default=False) if raw.text("model_type", default="") == "deepseek_v2" else False
    experts, active = read_expert_counts(
        raw,
        ("n_routed_experts", "num_experts", "num_local_experts"),
        ("num_experts_per_tok",),
        defaults=(assumed.experts, assumed.active),
    )
    width = read_width(raw, "moe_intermediate_size", default=assumed.moe_intermediate_size)
    shared = raw.integer("n_shared_experts", default=assumed.shared, maximum=1 << 10)
    dense = Mlp(
        intermediate_size=read_width(raw, "intermediate_size", default=assumed.intermediate_size),
        activation=activation,
        bias=bias,
    )
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=width,
        activation=activation,
        correction_bias=assumed.correction,
        shared=shared_experts(shared, width, activation=activation, bias=bias),
    )
    return dense, moe
