"""BLOOM: ALiBi, LayerNorm (one on the embedding too), query, key and value in one matrix by head, a tied embedding.

Source: transformers 5.24 `models/bloom`; arXiv 2211.05100.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import as_multi_head, assemble, attention_of, read_dimensions
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, layer_norm, vocabulary_matrix


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a bloom config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = as_multi_head(read_dimensions(raw, tie_default=True))
    attention = attention_of(
        dims,
        bias=True,
        output_bias=True,
        fused=True,
        names=AttentionNames(block="self_attention", fused="query_key_value", output="dense"),
    )
    mlp = Mlp(
        intermediate_size=4 * dims.hidden_size,
        gated=False,
        activation="gelu_pytorch_tanh",
        bias=True,
        names=MlpNames(up="dense_h_to_4h", down="dense_4h_to_h"),
    )
    norms = (
        layer_norm("input_layernorm", dims.hidden_size),
        layer_norm("post_attention_layernorm", dims.hidden_size),
    )
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    embedding = vocabulary_matrix(
        "transformer.word_embeddings.weight", dims.vocab_size, dims.hidden_size, Role.EMBEDDING
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("transformer.ln_f", dims.hidden_size),
        embeddings=(
            embedding,
            *layer_norm("transformer.word_embeddings_layernorm", dims.hidden_size).tensors(),
        ),
        layer_prefix="transformer.h",
    )
