"""MPT: ALiBi, LayerNorm without bias, query, key and value in one matrix, a tied embedding, no bias anywhere.

Source: transformers 5.24 `models/mpt`, which covers what MosaicML published (multi-head attention with ALiBi). The
other switches of their code add or change weights and are refused.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import as_multi_head, assemble, attention_of, read_dimensions, refuse
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an mpt config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: biases, grouped or multi-query attention, norms on queries and keys, or learned
            positions.
    """
    dims = as_multi_head(read_dimensions(raw, tie_default=True))
    if not raw.flag("no_bias", default=True):
        raise refuse(raw, "no_bias", "is false; MPT with biases is not understood")
    options = raw.section("attn_config")
    if options is not None:
        if options.text("attn_type", default="multihead_attention") != "multihead_attention":
            raise refuse(options, "attn_type", "must be multihead_attention; other MPT attention is not understood")
        if options.flag("qk_ln", default=False):
            raise refuse(options, "qk_ln", "is true; MPT with norms on queries and keys is not understood")
        if not options.flag("alibi", default=True):
            raise refuse(options, "alibi", "is false; MPT with learned or rotary positions is not understood")
    expansion = raw.integer("expansion_ratio", default=4, minimum=1, maximum=1 << 10)
    attention = attention_of(dims, fused=True, names=AttentionNames(block="attn", fused="Wqkv", output="out_proj"))
    mlp = Mlp(
        intermediate_size=expansion * dims.hidden_size,
        gated=False,
        activation="gelu",
        names=MlpNames(block="ffn"),
    )
    norms = (
        layer_norm("norm_1", dims.hidden_size, bias=False),
        layer_norm("norm_2", dims.hidden_size, bias=False),
    )
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("transformer.norm_f", dims.hidden_size, bias=False),
        layer_prefix="transformer.blocks",
        embedding_name="transformer.wte.weight",
    )
