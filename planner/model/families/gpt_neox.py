"""GPT-NeoX and Pythia: LayerNorm, query, key and value in one matrix by head, a plain MLP, a quarter of a head rotates.

Source: transformers 5.24 `models/gpt_neox`; arXiv 2204.06745. Checkpoints call the head embed_out.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import as_multi_head, assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gpt_neox config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = as_multi_head(read_dimensions(raw))
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.25)
    bias = raw.flag("attention_bias", default=True)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        fused=True,
        names=AttentionNames(block="attention", fused="query_key_value", output="dense"),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        gated=False,
        activation=raw.text("hidden_act", default="gelu"),
        bias=True,
        names=MlpNames(up="dense_h_to_4h", down="dense_4h_to_h"),
    )
    norms = (
        layer_norm("input_layernorm", dims.hidden_size),
        layer_norm("post_attention_layernorm", dims.hidden_size),
    )
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("gpt_neox.final_layer_norm", dims.hidden_size),
        rotary_dim=rotary_dim,
        layer_prefix="gpt_neox.layers",
        embedding_name="gpt_neox.embed_in.weight",
        head_name="embed_out",
    )
