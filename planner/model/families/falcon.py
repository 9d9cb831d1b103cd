"""Falcon 1 and 2: attention and MLP side by side, one key head (7B) or a few (40B, 180B, 11B), rotation or ALiBi.

query, key and value  new_decoder_architecture: num_kv_heads; else multi_query: one; else as many as query heads
norms                 side by side: one (7B, 11B) or one each (40B, 180B: num_ln_in_parallel_attn 2); else two

Source: transformers 5.24 `models/falcon`; arXiv 2311.16867.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a falcon config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw, tie_default=True)
    if not raw.flag("new_decoder_architecture", default=False):
        multi_query = raw.flag("multi_query", default=True)
        dims = replace(dims, num_key_value_heads=1 if multi_query else dims.num_attention_heads)
    rotary_dim = 0 if raw.flag("alibi", default=False) else dims.head_dim
    bias = raw.flag("bias", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        fused=True,
        names=AttentionNames(block="self_attention", fused="query_key_value", output="dense"),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("ffn_hidden_size", default=4 * dims.hidden_size, minimum=1),
        gated=False,
        activation=raw.text("activation", default="gelu"),
        bias=bias,
        names=MlpNames(up="dense_h_to_4h", down="dense_4h_to_h"),
    )
    norms = tuple(layer_norm(name, dims.hidden_size) for name in _norm_names(raw))
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("transformer.ln_f", dims.hidden_size),
        rotary_dim=rotary_dim,
        layer_prefix="transformer.h",
        embedding_name="transformer.word_embeddings.weight",
    )


def _norm_names(raw: RawConfig) -> tuple[str, ...]:
    new = raw.flag("new_decoder_architecture", default=False)
    count = raw.integer("num_ln_in_parallel_attn", default=2 if new else 1, minimum=1, maximum=2)
    if not raw.flag("parallel_attn", default=True):
        return ("input_layernorm", "post_attention_layernorm")
    return ("ln_attn", "ln_mlp") if count == 2 else ("input_layernorm",)
