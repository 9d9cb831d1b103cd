"""DeBERTa v2 and v3: BERT whose positions are a table of relative distances, read by attention beside the text.

pos_att_type says which products with the table are made; with share_att_key (v3) they use the projections of query and
key, otherwise matrices of their own. The largest v2 has a convolution beside its first layer (conv_kernel_size).

Source: arXiv 2006.03654, 2111.09543; transformers 5.24 models/deberta_v2 (configuration_, modeling_).
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.bert import encoder_only, vocabulary_bias
from planner.model.families.decoder import Dimensions, assemble, read_architecture, read_dimensions, refuse
from planner.model.heads import read_labels
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor, layer_norm, linear, vocabulary_matrix

_SIZES = {
    "vocab_size": 128_100,
    "hidden_size": 1536,
    "num_hidden_layers": 24,
    "num_attention_heads": 24,
    "max_position_embeddings": 512,
}
_ATTENTION = AttentionNames("attention", "self.query_proj", "self.key_proj", "self.value_proj", "output.dense")
_MLP = MlpNames(block="", up="intermediate.dense", down="output.dense")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a deberta-v2 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a head, or an embedding of another width, that is not modelled.
    """
    dims = read_dimensions(raw, tie_default=True, defaults=_SIZES)
    hidden = dims.hidden_size
    if raw.integer("embedding_size", default=hidden, minimum=1) != hidden:
        raise refuse(raw, "embedding_size", f"is not hidden_size {hidden}")
    base = "" if read_architecture(raw).endswith("Model") else "deberta."
    relative = raw.flag("relative_attention", default=False)
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=dims.num_attention_heads,
        intermediate_size=raw.integer("intermediate_size", default=6144, minimum=1, maximum=1 << 24),
        activation=raw.text("hidden_act", default="gelu"),
        norms=(layer_norm("attention.output.LayerNorm", hidden), layer_norm("output.LayerNorm", hidden)),
        attention_names=_ATTENTION,
        mlp_names=_MLP,
        role=None,
        extra=_position_matrices(raw, hidden) if relative else (),
    )
    spec = assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=None,
        embeddings=(*_embeddings(raw, dims, base), *(_distances(raw, dims, base) if relative else ())),
        head=(*_convolution(raw, hidden, base), *_head(raw, dims)),
        layer_prefix=f"{base}encoder.layer",
    )
    return encoder_only(spec, usable_positions=dims.max_position_embeddings)


def _embeddings(raw: RawConfig, dims: Dimensions, base: str) -> tuple[Tensor, ...]:
    hidden, types = dims.hidden_size, raw.integer("type_vocab_size", default=0, maximum=1 << 16)
    name = f"{base}embeddings"
    found: tuple[Tensor, ...] = (
        vocabulary_matrix(f"{name}.word_embeddings.weight", dims.vocab_size, hidden, Role.EMBEDDING),
    )
    if raw.flag("position_biased_input", default=True):
        found += (
            parameter(f"{name}.position_embeddings.weight", dims.max_position_embeddings, hidden, role=Role.POSITION),
        )
    if types:
        found += (parameter(f"{name}.token_type_embeddings.weight", types, hidden, role=Role.OTHER),)
    return (*found, *layer_norm(f"{name}.LayerNorm", hidden).tensors())


def _distances(raw: RawConfig, dims: Dimensions, base: str) -> tuple[Tensor, ...]:
    """The table of relative distances: as many buckets, or positions, in both directions."""
    reach = raw.raw("max_relative_positions")
    if isinstance(reach, bool) or not isinstance(reach, int) or reach < 1:
        reach = dims.max_position_embeddings
    buckets = raw.raw("position_buckets")
    span = buckets if isinstance(buckets, int) and not isinstance(buckets, bool) and buckets > 0 else reach
    if span > 1 << 20:
        raise raw.error("position_buckets", f"is {span}; expected at most {1 << 20:,}")
    table: tuple[Tensor, ...] = (
        parameter(f"{base}encoder.rel_embeddings.weight", 2 * span, dims.hidden_size, role=Role.POSITION),
    )
    if "layer_norm" in raw.text("norm_rel_ebd", default="none"):
        table += layer_norm(f"{base}encoder.LayerNorm", dims.hidden_size).tensors()
    return table


def _position_matrices(raw: RawConfig, hidden: int) -> tuple[Tensor, ...]:
    kinds = raw.raw("pos_att_type")
    chosen = set(kinds.split("|")) if isinstance(kinds, str) else set(raw.texts("pos_att_type") or [])
    if raw.flag("share_att_key", default=False):
        return ()
    found: tuple[Tensor, ...] = ()
    if "c2p" in chosen:
        found += linear("attention.self.pos_key_proj", hidden, hidden, Role.ATTENTION, bias=True)
    if "p2c" in chosen:
        found += linear("attention.self.pos_query_proj", hidden, hidden, Role.ATTENTION, bias=True)
    return found


def _convolution(raw: RawConfig, hidden: int, base: str) -> tuple[Tensor, ...]:
    kernel = raw.integer("conv_kernel_size", default=0, maximum=1 << 10)
    if not kernel:
        return ()
    groups = raw.integer("conv_groups", default=1, minimum=1, maximum=hidden)
    return (
        *convolution(f"{base}encoder.conv.conv", hidden, hidden // groups, kernel, bias=True, role=Role.OTHER),
        *layer_norm(f"{base}encoder.conv.LayerNorm", hidden).tensors(),
    )


def _head(raw: RawConfig, dims: Dimensions) -> tuple[Tensor, ...]:
    hidden, architecture = dims.hidden_size, read_architecture(raw)
    kind = architecture.partition("For")[2] if not architecture.endswith("Model") else ""
    if kind == "":
        return ()
    if kind == "SequenceClassification":
        pooled = raw.integer("pooler_hidden_size", default=hidden, minimum=1, maximum=1 << 20)
        return (
            *linear("pooler.dense", pooled, pooled, Role.OTHER, bias=True),
            *linear("classifier", read_labels(raw), pooled, Role.OTHER, bias=True),
        )
    if kind == "TokenClassification":
        return linear("classifier", read_labels(raw), hidden, Role.OTHER, bias=True)
    if kind == "QuestionAnswering":
        return linear("qa_outputs", 2, hidden, Role.OTHER, bias=True)
    if kind == "MaskedLM" and raw.flag("legacy", default=True):
        return (
            *linear("cls.predictions.transform.dense", hidden, hidden, Role.OTHER, bias=True),
            *layer_norm("cls.predictions.transform.LayerNorm", hidden).tensors(),
            vocabulary_bias("cls.predictions.bias", dims.vocab_size),
        )
    raise refuse(raw, "architectures", f"names {architecture[:60]}, whose head is not modelled")
