"""GTE's own encoder (model_type "new") and Jina's third: BERT with rotary positions.

new                  one matrix for q, k and v, a gated MLP whose gate and up are one matrix without bias
jina_embeddings_v3   a plain MLP, one vector of token types; the five task adapters are merged while loading

Sources: Alibaba-NLP/new-impl `modeling.py` and `configuration.py` (remote code), vLLM 0.19.1 models/bert_with_rope.py;
arXiv 2409.10173, transformers 5.24 models/jina_embeddings_v3.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.bert import encoder_only
from planner.model.families.decoder import Dimensions, assemble, read_architecture, read_dimensions, refuse
from planner.model.heads import read_labels
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.kinds.tower import encoder_layer, parameter
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, Tensor, layer_norm, linear, vocabulary_matrix

_NEW = {
    "vocab_size": 30_528,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
}
_JINA = {
    "vocab_size": 250_002,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 8194,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a new or jina_embeddings_v3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: positions that do not rotate, a head that is not modelled.
    """
    gte = raw.text("model_type", default="new") == "new"
    dims = read_dimensions(raw, tie_default=True, defaults=_NEW if gte else _JINA)
    if raw.text("position_embedding_type", default="rope" if gte else "rotary") not in ("rope", "rotary"):
        raise refuse(raw, "position_embedding_type", "is not rotary, which is all that is understood here")
    architecture = read_architecture(raw)
    base = "" if architecture.endswith("Model") else ("new." if gte else "roberta.")
    spec = assemble(
        raw,
        dims,
        (_gte_layer(raw, dims) if gte else _jina_layer(raw, dims),) * dims.num_hidden_layers,
        final_norm=None,
        rotary_dim=dims.head_dim,
        embeddings=_embeddings(raw, dims, base, types_default=0 if gte else 1),
        head=_head(raw, dims, architecture, gte=gte),
        layer_prefix=f"{base}encoder.layer" if gte else f"{base}layers",
    )
    return encoder_only(spec, usable_positions=dims.max_position_embeddings)


def _embeddings(raw: RawConfig, dims: Dimensions, base: str, *, types_default: int) -> tuple[Tensor, ...]:
    types = raw.integer("type_vocab_size", default=types_default, maximum=1 << 16)
    found: tuple[Tensor, ...] = (
        vocabulary_matrix(
            f"{base}embeddings.word_embeddings.weight", dims.vocab_size, dims.hidden_size, Role.EMBEDDING
        ),
    )
    if types:
        found += (
            parameter(f"{base}embeddings.token_type_embeddings.weight", types, dims.hidden_size, role=Role.OTHER),
        )
    return (*found, *layer_norm(f"{base}embeddings.LayerNorm", dims.hidden_size).tensors())


def _gte_layer(raw: RawConfig, dims: Dimensions) -> Layer:
    hidden, inner = dims.hidden_size, raw.integer("intermediate_size", default=3072, minimum=1, maximum=1 << 24)
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=dims.num_attention_heads,
        intermediate_size=inner,
        activation=raw.text("hidden_act", default="gelu"),
        norms=(layer_norm("attn_ln", hidden), layer_norm("mlp_ln", hidden)),
        attention_names=AttentionNames(block="attention", fused="qkv_proj", output="o_proj"),
        fused=True,
        rotary=True,
        role=None,
    )
    # gate and up are one matrix, and the down matrix alone has a bias
    mlp = Mlp(
        intermediate_size=inner,
        fused=True,
        activation=raw.text("hidden_act", default="gelu"),
        output_bias=True,
        names=MlpNames(fused="up_gate_proj"),
    )
    return replace(layer, feed_forward=mlp)


def _jina_layer(raw: RawConfig, dims: Dimensions) -> Layer:
    hidden = dims.hidden_size
    return encoder_layer(
        hidden_size=hidden,
        num_heads=dims.num_attention_heads,
        intermediate_size=raw.integer("intermediate_size", default=4096, minimum=1, maximum=1 << 24),
        activation=raw.text("hidden_act", default="gelu"),
        norms=(layer_norm("post_attention_layernorm", hidden), layer_norm("post_mlp_layernorm", hidden)),
        attention_names=AttentionNames(),
        rotary=True,
        role=None,
    )


def _head(raw: RawConfig, dims: Dimensions, architecture: str, *, gte: bool) -> tuple[Tensor, ...]:
    hidden = dims.hidden_size
    pooler = linear("pooler.dense", hidden, hidden, Role.OTHER, bias=True)
    if architecture.endswith("Model") or not architecture:
        return () if gte else pooler
    kind = architecture.partition("For")[2]
    if kind == "SequenceClassification" and gte:
        return (
            *(tensor.named("new") for tensor in pooler),
            *linear("classifier", read_labels(raw), hidden, Role.OTHER, bias=True),
        )
    if kind == "TokenClassification":
        return linear("classifier", read_labels(raw), hidden, Role.OTHER, bias=True)
    raise refuse(raw, "architectures", f"names {architecture[:60]}, whose head is not modelled")
