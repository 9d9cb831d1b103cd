"""InternLM2: Llama with query, key and value in one matrix (wqkv, interleaved by key head) under its own names.

transformers has no such class; names and sizes follow the checkpoints and vLLM 0.19 `internlm2.py`.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an internlm2 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("bias", default=True)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        fused=True,
        names=AttentionNames(block="attention", fused="wqkv", output="wo"),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
        names=MlpNames(block="feed_forward", gate="w1", up="w3", down="w2"),
    )
    norms = (Norm("attention_norm", dims.hidden_size), Norm("ffn_norm", dims.hidden_size))
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
        embedding_name="model.tok_embeddings.weight",
        head_name="output",
    )
