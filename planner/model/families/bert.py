"""Encoders in BERT's mould: bert, roberta, xlm-roberta, mpnet, nomic_bert. They read a text at once, keep no cache.

bert, roberta   learned positions, a norm after attention and after the MLP, biases everywhere
mpnet           the same with a table of relative positions shared by all layers, and no token types
nomic_bert      rotary positions, gated MLP, no biases

What follows the layers is told by the architecture: a pooler, a masked language model's head (its matrix tied to the
embedding), or a classifier.

Sources: arXiv 1810.04805, 1907.11692, 2004.09297, 2402.01613; transformers 5.24 bert, roberta, xlm_roberta, mpnet,
nomic_bert (configuration_, modeling_).
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    read_architecture,
    read_dimensions,
    read_rotary_dim,
    refuse,
)
from planner.model.heads import read_labels
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import encoder_layer, parameter
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Part, Role, Split, Tensor, layer_norm, linear, vocabulary_matrix

_BERT = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 512,
}
_DEFAULTS = {
    "mpnet": {**_BERT, "vocab_size": 30_527},
    "nomic_bert": {**_BERT, "vocab_size": 30_528, "max_position_embeddings": 2048},
    "roberta": {**_BERT, "vocab_size": 50_265},
}
_BASE = {"bert": "bert", "roberta": "roberta", "xlm-roberta": "roberta", "mpnet": "mpnet", "nomic_bert": "nomic_bert"}
_BERT_NAMES = AttentionNames("attention", "self.query", "self.key", "self.value", "output.dense")
_MPNET_NAMES = AttentionNames("attention", "attn.q", "attn.k", "attn.v", "attn.o")
_MLP_NAMES = MlpNames(block="", up="intermediate.dense", down="output.dense")
# RoBERTa and MPNet number positions from pad_token_id + 1, so that many rows of the table are never reached
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "mpnet")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a bert, roberta, xlm-roberta, mpnet or nomic_bert config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a head, or kind of positions, that is not modelled.
    """
    model_type = raw.text("model_type", default="bert")
    dims = read_dimensions(raw, tie_default=True, defaults=_DEFAULTS.get(model_type, _BERT))
    for field in ("is_decoder", "add_cross_attention"):
        if raw.flag(field, default=False):
            raise refuse(raw, field, "is true; only the encoder is understood")
    if raw.text("position_embedding_type", default="absolute") != "absolute":
        raise refuse(raw, "position_embedding_type", "is not absolute")
    if dims.num_key_value_heads != dims.num_attention_heads:
        raise refuse(raw, "num_key_value_heads", f"is not num_attention_heads {dims.num_attention_heads}")
    bare = read_architecture(raw).endswith("Model")
    base = "" if bare else f"{_BASE[model_type]}."
    rotary_dim = read_rotary_dim(raw, dims.head_dim) if model_type == "nomic_bert" else 0
    spec = assemble(
        raw,
        dims,
        (_layer(raw, dims, model_type),) * dims.num_hidden_layers,
        final_norm=None,
        rotary_dim=rotary_dim,
        embeddings=_embeddings(raw, dims, model_type, base),
        head=_head(raw, dims, model_type, base),
        layer_prefix=f"{base}layers" if model_type == "nomic_bert" else f"{base}encoder.layer",
    )
    return encoder_only(spec, usable_positions=_usable_positions(raw, dims, model_type))


def encoder_only(spec: ModelSpec, *, usable_positions: int) -> ModelSpec:
    """The same model marked as one that generates nothing."""
    return replace(spec, decoder=False, max_position_embeddings=usable_positions)


def _usable_positions(raw: RawConfig, dims: Dimensions, model_type: str) -> int:
    if model_type not in _OFFSET_POSITIONS:
        return dims.max_position_embeddings
    return max(1, dims.max_position_embeddings - raw.integer("pad_token_id", default=1, maximum=1 << 20) - 1)


def _layer(raw: RawConfig, dims: Dimensions, model_type: str) -> Layer:
    hidden, nomic = dims.hidden_size, model_type == "nomic_bert"
    if dims.head_dim * dims.num_attention_heads != hidden:
        raise refuse(raw, "head_dim", f"{dims.head_dim} times the heads is not hidden_size {hidden}")
    inner = raw.integer("intermediate_size", "n_inner", default=3072, minimum=1, maximum=1 << 24)
    if nomic:
        return encoder_layer(
            hidden_size=hidden,
            num_heads=dims.num_attention_heads,
            intermediate_size=inner,
            activation=raw.text("hidden_act", default="silu"),
            norms=(layer_norm("post_attention_layernorm", hidden), layer_norm("post_mlp_layernorm", hidden)),
            attention_names=AttentionNames(),
            mlp_names=MlpNames(),
            gated=True,
            attention_bias=False,
            mlp_bias=False,
            rotary=True,
            role=None,
        )
    after_attention = "attention.LayerNorm" if model_type == "mpnet" else "attention.output.LayerNorm"
    return encoder_layer(
        hidden_size=hidden,
        num_heads=dims.num_attention_heads,
        intermediate_size=inner,
        activation=raw.text("hidden_act", default="gelu"),
        norms=(layer_norm(after_attention, hidden), layer_norm("output.LayerNorm", hidden)),
        attention_names=_MPNET_NAMES if model_type == "mpnet" else _BERT_NAMES,
        mlp_names=_MLP_NAMES,
        role=None,
    )


def _embeddings(raw: RawConfig, dims: Dimensions, model_type: str, base: str) -> tuple[Tensor, ...]:
    name, hidden = f"{base}embeddings", dims.hidden_size
    found = [vocabulary_matrix(f"{name}.word_embeddings.weight", dims.vocab_size, hidden, Role.EMBEDDING)]
    if model_type != "nomic_bert":
        rows = dims.max_position_embeddings
        found.append(parameter(f"{name}.position_embeddings.weight", rows, hidden, role=Role.POSITION))
    types = raw.integer("type_vocab_size", default=2, minimum=0, maximum=1 << 20)
    if model_type != "mpnet":
        found.append(parameter(f"{name}.token_type_embeddings.weight", types, hidden, role=Role.POSITION))
    found += layer_norm(f"{name}.LayerNorm", hidden).tensors()
    if model_type == "mpnet":
        buckets = raw.integer("relative_attention_num_buckets", default=32, minimum=1, maximum=1 << 16)
        table = f"{base}encoder.relative_attention_bias.weight"
        found.append(parameter(table, buckets, dims.num_attention_heads, role=Role.POSITION))
    return tuple(found)


def _head(raw: RawConfig, dims: Dimensions, model_type: str, base: str) -> tuple[Tensor, ...]:
    """What the architecture puts after the layers.

    Raises:
        UnsupportedArchitecture: a head that is not modelled.
    """
    hidden, architecture = dims.hidden_size, read_architecture(raw)
    kind = architecture.partition("For")[2] if not architecture.endswith("Model") else "Model"
    if model_type == "nomic_bert" and kind in ("", "Model"):
        return ()
    pooler = linear(f"{base}pooler.dense", hidden, hidden, Role.OTHER, bias=True)
    if kind in ("", "Model"):
        return pooler
    if model_type == "nomic_bert" or kind not in ("MaskedLM", "SequenceClassification", "TokenClassification"):
        raise refuse(raw, "architectures", f"names {architecture[:60]}, whose head is not modelled")
    if kind == "MaskedLM":
        return _masked_head(dims, model_type)
    classes = read_labels(raw)
    out = linear("classifier", classes, hidden, Role.OTHER, bias=True)
    if kind == "TokenClassification":
        return out
    if model_type == "bert":
        return pooler + out
    return (
        *linear("classifier.dense", hidden, hidden, Role.OTHER, bias=True),
        *linear("classifier.out_proj", classes, hidden, Role.OTHER, bias=True),
    )


def _masked_head(dims: Dimensions, model_type: str) -> tuple[Tensor, ...]:
    hidden = dims.hidden_size
    module, norm = ("cls.predictions.transform", "LayerNorm") if model_type == "bert" else ("lm_head", "layer_norm")
    bias_name = "cls.predictions.bias" if model_type == "bert" else "lm_head.bias"
    found = (
        *linear(f"{module}.dense", hidden, hidden, Role.OTHER, bias=True),
        *layer_norm(f"{module}.{norm}", hidden).tensors(),
        vocabulary_bias(bias_name, dims.vocab_size),
    )
    if dims.tie_word_embeddings:
        return found
    decoder = "cls.predictions.decoder" if model_type == "bert" else "lm_head.decoder"
    matrix = vocabulary_matrix(f"{decoder}.weight", dims.vocab_size, hidden, Role.LM_HEAD)
    return (*found, matrix, vocabulary_bias(f"{decoder}.bias", dims.vocab_size))


def vocabulary_bias(name: str, vocab_size: int) -> Tensor:
    """One value for each row of the vocabulary, cut as the vocabulary is."""
    return Tensor(name, (vocab_size,), Role.LM_HEAD, Split(0, (Part(vocab_size, vocab_size),), vocabulary=True))
