"""DBRX: one fused projection for queries, keys and values, LayerNorms without shifts, 16 experts in every layer.

Sources: transformers 5.24 configuration_ and modeling_dbrx; vLLM 0.19.1 models/dbrx.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions
from planner.model.families.experts import read_expert_counts, read_width
from planner.model.families.recurrent import refuse_unless
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Moe, MoeNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import layer_norm

_SIZES = {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 32000}
_EMPTY: Mapping[str, object] = {}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a dbrx config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: tied embeddings, which the class does not allow.
    """
    refuse_unless(raw, "tie_word_embeddings", False)
    attention_config = raw.section("attn_config") or RawConfig(_EMPTY, path=f"{raw.path}: attn_config")
    experts_config = raw.section("ffn_config") or RawConfig(_EMPTY, path=f"{raw.path}: ffn_config")
    dims = read_dimensions(raw, defaults=_SIZES)
    key_value_heads = attention_config.integer("kv_n_heads", default=1, minimum=1, maximum=1 << 14)
    if dims.num_attention_heads % key_value_heads:
        raise attention_config.error(
            "kv_n_heads", f"is {key_value_heads}, which does not divide n_heads {dims.num_attention_heads}"
        )
    dims = replace(dims, num_key_value_heads=key_value_heads)
    hidden = dims.hidden_size
    experts, active = read_expert_counts(experts_config, ("moe_num_experts",), ("moe_top_k",), defaults=(4, 1))
    function = experts_config.section("ffn_act_fn")
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(experts_config, "ffn_hidden_size", default=3584),
        activation=function.text("name", default="silu") if function is not None else "silu",
        flat=True,
        names=MoeNames(block="ffn", router="router.layer"),
    )
    attention = attention_of(
        dims,
        rotary_dim=dims.head_dim,
        fused=True,
        names=AttentionNames(block="norm_attn_norm.attn", fused="Wqkv", output="out_proj"),
    )
    layer = Layer(
        mixers=(attention,),
        feed_forward=moe,
        norms=(
            layer_norm("norm_attn_norm.norm_1", hidden, bias=False),
            layer_norm("norm_attn_norm.norm_2", hidden, bias=False),
        ),
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("transformer.norm_f", hidden, bias=False),
        rotary_dim=dims.head_dim,
        layer_prefix="transformer.blocks",
        embedding_name="transformer.wte.weight",
    )
