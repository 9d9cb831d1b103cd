"""DistilBERT: BERT with half the layers, without token types and pooler.

Source: arXiv 1910.01108; transformers 5.24 models/distilbert (configuration_, modeling_).
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.bert import encoder_only, vocabulary_bias
from planner.model.families.decoder import Dimensions, assemble, read_architecture, read_dtype, refuse
from planner.model.heads import read_labels
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import encoder_layer, parameter
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor, layer_norm, linear, vocabulary_matrix

_ATTENTION = AttentionNames("attention", "q_lin", "k_lin", "v_lin", "out_lin")
_MLP = MlpNames(block="ffn", up="lin1", down="lin2")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a distilbert config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a head that is not modelled.
    """
    hidden = raw.integer("dim", "hidden_size", default=768, minimum=1, maximum=1 << 20)
    heads = raw.integer("n_heads", "num_attention_heads", default=12, minimum=1, maximum=1 << 14)
    if hidden % heads:
        raise raw.error("n_heads", f"is {heads}, which does not divide dim {hidden}")
    count = raw.integer("n_layers", "num_hidden_layers", default=6, minimum=1, maximum=2_000)
    dims = Dimensions(
        hidden_size=hidden,
        num_hidden_layers=count,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        vocab_size=raw.integer("vocab_size", default=30_522, minimum=1, maximum=1 << 27),
        max_position_embeddings=raw.integer("max_position_embeddings", default=512, minimum=1, maximum=1 << 31),
        dtype=read_dtype(raw),
        tie_word_embeddings=raw.flag("tie_word_embeddings", default=True),
    )
    base = "" if read_architecture(raw).endswith("Model") else "distilbert."
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=raw.integer("hidden_dim", "intermediate_size", default=3072, minimum=1, maximum=1 << 24),
        activation=raw.text("activation", default="gelu"),
        norms=(layer_norm("sa_layer_norm", hidden), layer_norm("output_layer_norm", hidden)),
        attention_names=_ATTENTION,
        mlp_names=_MLP,
        role=None,
    )
    spec = assemble(
        raw,
        dims,
        (layer,) * count,
        final_norm=None,
        embeddings=(
            vocabulary_matrix(f"{base}embeddings.word_embeddings.weight", dims.vocab_size, hidden, Role.EMBEDDING),
            parameter(
                f"{base}embeddings.position_embeddings.weight", dims.max_position_embeddings, hidden, role=Role.POSITION
            ),
            *layer_norm(f"{base}embeddings.LayerNorm", hidden).tensors(),
        ),
        head=_head(raw, dims),
        layer_prefix=f"{base}transformer.layer",
    )
    return encoder_only(spec, usable_positions=dims.max_position_embeddings)


def _head(raw: RawConfig, dims: Dimensions) -> tuple[Tensor, ...]:
    hidden, architecture = dims.hidden_size, read_architecture(raw)
    kind = architecture.partition("For")[2] if not architecture.endswith("Model") else ""
    if kind == "":
        return ()
    if kind == "MaskedLM":
        found = (
            *linear("vocab_transform", hidden, hidden, Role.OTHER, bias=True),
            *layer_norm("vocab_layer_norm", hidden).tensors(),
            vocabulary_bias("vocab_projector.bias", dims.vocab_size),
        )
        if dims.tie_word_embeddings:
            return found
        return (*found, vocabulary_matrix("vocab_projector.weight", dims.vocab_size, hidden, Role.LM_HEAD))
    if kind == "SequenceClassification":
        return (
            *linear("pre_classifier", hidden, hidden, Role.OTHER, bias=True),
            *linear("classifier", read_labels(raw), hidden, Role.OTHER, bias=True),
        )
    if kind == "TokenClassification":
        return linear("classifier", read_labels(raw), hidden, Role.OTHER, bias=True)
    if kind == "QuestionAnswering":
        return linear("qa_outputs", 2, hidden, Role.OTHER, bias=True)
    raise refuse(raw, "architectures", f"names {architecture[:60]}, whose head is not modelled")
