"""LongCat-Flash: two latent attentions and two dense MLPs in each layer, and experts beside them, some of which only
hand their input on.

`num_layers` counts these double layers. Of `n_routed_experts` + `zero_expert_num` choices the latter have no weights; a
token that chooses some of them uses fewer, so the active parameters here are the most that one token can use.
transformers 5.24 allocates rows for them in its gate and up tensor, which no checkpoint has; they are not counted here.

Sources: LongCat-Flash (arXiv 2509.01322); transformers 5.24 configuration_ and modeling_longcat_flash; vLLM 0.19.1
models/longcat_flash.py, longcat_flash_mtp.py (router in fp32 where router_dtype says so).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, refuse
from planner.model.families.deepseek import read_latent_attention, read_latent_dimensions
from planner.model.families.experts import MOST_EXPERTS, draft_layer, read_expert_counts, read_width
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.feed_forward import Mlp, MlpNames, Moe, MoeNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Tensor

_SIZES: Final = {
    "vocab_size": 131072,
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "max_position_embeddings": 131072,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a longcat_flash config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    refuse_unless(raw, "zero_expert_type", "identity")
    refuse_unless(raw, "attention_method", "MLA")
    if raw.has("emb_neighbor_num", "emb_split_num"):
        raise refuse(raw, "emb_neighbor_num", "selects embeddings of runs of tokens, which are not understood")
    count = raw.integer("num_layers", default=28, minimum=1, maximum=1000)
    doubled = raw.integer("num_hidden_layers", default=2 * count)
    if doubled not in (count, 2 * count):
        raise raw.error("num_hidden_layers", f"is {doubled}, neither num_layers {count} nor twice that")
    dims = read_latent_dimensions(raw, {**_SIZES, "num_hidden_layers": 2 * count})
    hidden = dims.hidden_size
    attention = read_latent_attention(
        raw, dims.num_attention_heads, q_lora_rank=1536, kv_lora_rank=512, nope=128, rope=64, value=128
    )
    if raw.integer("qk_head_dim", default=attention.head_dim) != attention.head_dim:
        raise raw.error("qk_head_dim", f"is not qk_nope_head_dim + qk_rope_head_dim, {attention.head_dim}")
    activation = raw.text("hidden_act", default="silu")
    experts, _ = read_expert_counts(
        raw, ("n_routed_experts", "num_local_experts"), ("moe_topk", "num_experts_per_tok"), defaults=(512, 12)
    )
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("moe_topk", "num_experts_per_tok", default=12, minimum=1, maximum=experts),
        moe_intermediate_size=read_width(raw, "expert_ffn_hidden_size", "moe_intermediate_size", default=2048),
        activation=activation,
        zero_experts=raw.integer("zero_expert_num", default=256, maximum=MOST_EXPERTS),
        router_bias=raw.flag("router_bias", default=False),
        router_dtype="float32" if raw.text("router_dtype", default="float32") == "float32" else None,
        correction_bias=True,
        names=MoeNames(router="router.classifier", correction="router.e_score_correction_bias"),
    )
    width = read_width(raw, "ffn_hidden_size", "intermediate_size", default=12288)
    dense = Mlp(intermediate_size=width, activation=activation)
    layer = Layer(
        mixers=tuple(replace(attention, block=f"self_attn.{half}") for half in (0, 1)),
        feed_forward=moe,
        norms=tuple(
            Norm(f"{name}.{half}", hidden)
            for name in ("input_layernorm", "post_attention_layernorm")
            for half in (0, 1)
        ),
        extra=tuple(tensor for half in (0, 1) for tensor in _mlp(dense, half, hidden)),
    )
    drafts = raw.integer("num_nextn_predict_layers", default=0, maximum=64)
    spec = assemble(
        raw,
        dims,
        (layer,) * count,
        final_norm=Norm("model.norm", hidden),
        rotary_dim=attention.qk_rope_head_dim,
    )
    return replace(spec, draft_layers=(draft_layer((attention,), dense, hidden),) * drafts)


def _mlp(dense: Mlp, half: int, hidden_size: int) -> tuple[Tensor, ...]:
    """One of the two dense MLPs of a layer."""
    return replace(dense, names=MlpNames(block=f"mlps.{half}")).tensors(hidden_size)
