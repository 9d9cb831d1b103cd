"""ModernBERT: rotary positions, gated MLP, every third layer sees everything and the others a window of 128.

Source: arXiv 2412.13663; transformers 5.24 models/modernbert. An encoder: it keeps no cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.bert import encoder_only, vocabulary_bias
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    attention_of,
    layers_of,
    read_architecture,
    read_dimensions,
    refuse,
)
from planner.model.families.recurrent import check_layer_types
from planner.model.heads import read_labels
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.rope import rope_tables_by_type
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, layer_norm, linear, vocabulary_matrix

_DEFAULTS = {
    "vocab_size": 50_368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "max_position_embeddings": 8192,
}
_ATTENTION = AttentionNames(block="attn", output="Wo", fused="Wqkv")
_MLP = MlpNames(block="mlp", fused="Wi", down="Wo")
_FULL, _SLIDING = "full_attention", "sliding_attention"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a modernbert config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a head or a type of layer that is not modelled.
    """
    dims = read_dimensions(raw, tie_default=True, defaults=_DEFAULTS)
    hidden = dims.hidden_size
    norm_bias = raw.flag("norm_bias", default=False)
    base = "" if read_architecture(raw).endswith("Model") else "model."
    mlp_bias, bias = raw.flag("mlp_bias", default=False), raw.flag("attention_bias", default=False)
    window = raw.integer("local_attention", default=128, minimum=2)
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", default=1152, minimum=1, maximum=1 << 24),
        fused=True,
        activation=raw.text("hidden_activation", default="gelu"),
        bias=mlp_bias,
        names=_MLP,
    )
    types = _layer_types(raw, dims.num_hidden_layers)

    def norm(name: str) -> Norm:
        return layer_norm(name, hidden, bias=norm_bias)

    def layer(key: tuple[str, bool]) -> Layer:
        kind, is_first = key
        attention = replace(
            attention_of(
                dims,
                rotary_dim=dims.head_dim,
                sliding_window=window if kind == _SLIDING else None,
                bias=bias,
                output_bias=bias,
                fused=True,
                names=_ATTENTION,
            ),
            causal=False,
        )
        norms = (norm("mlp_norm"),) if is_first else (norm("attn_norm"), norm("mlp_norm"))
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    table = f"{base}embeddings.tok_embeddings.weight"
    spec = assemble(
        raw,
        dims,
        layers_of([(kind, index == 0) for index, kind in enumerate(types)], layer),
        final_norm=None,
        embeddings=(
            vocabulary_matrix(table, dims.vocab_size, hidden, Role.EMBEDDING),
            *norm(f"{base}embeddings.norm").tensors(),
        ),
        head=(*norm(f"{base}final_norm").tensors(), *_head(raw, dims, norm)),
        layer_prefix=f"{base}layers",
        rope_tables=rope_tables_by_type(
            raw, rotary_dim=dims.head_dim, max_position_embeddings=dims.max_position_embeddings, same_base=False
        ),
    )
    return encoder_only(spec, usable_positions=dims.max_position_embeddings)


def _layer_types(raw: RawConfig, count: int) -> list[str]:
    types = raw.texts("layer_types", length=count)
    if types is not None:
        return check_layer_types(raw, "layer_types", types, (_FULL, _SLIDING))
    every = raw.integer("global_attn_every_n_layers", default=3, minimum=1)
    return [_SLIDING if index % every else _FULL for index in range(count)]


def _head(raw: RawConfig, dims: Dimensions, norm: Callable[[str], Norm]) -> tuple[Tensor, ...]:
    architecture, hidden = read_architecture(raw), dims.hidden_size
    if not architecture or architecture.endswith("Model"):
        return ()
    kind = architecture.partition("For")[2]
    head = (
        *linear("head.dense", hidden, hidden, Role.OTHER, bias=raw.flag("classifier_bias", default=False)),
        *norm("head.norm").tensors(),
    )
    if kind in ("SequenceClassification", "TokenClassification"):
        return (*head, *linear("classifier", read_labels(raw), hidden, Role.OTHER, bias=True))
    if kind != "MaskedLM":
        raise refuse(raw, "architectures", f"names {architecture[:60]}, whose head is not modelled")
    if not dims.tie_word_embeddings:
        head += (vocabulary_matrix("decoder.weight", dims.vocab_size, hidden, Role.LM_HEAD),)
    if raw.flag("decoder_bias", default=True):
        head += (vocabulary_bias("decoder.bias", dims.vocab_size),)
    return head
