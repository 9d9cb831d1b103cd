"""RWKV-4: time mixing and channel mixing, no attention, a state of five vectors a layer.

Source: transformers 5.24 configuration_rwkv, modeling_rwkv.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dtype, read_layer_count
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.kinds.rwkv import RwkvTimeMixing
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, Tensor, layer_norm, linear, vocabulary_matrix


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an rwkv config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    hidden = raw.integer("hidden_size", minimum=1, maximum=1 << 20)
    dims = Dimensions(
        hidden_size=hidden,
        num_hidden_layers=read_layer_count(raw, "num_hidden_layers"),
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=1,
        vocab_size=raw.integer("vocab_size", minimum=1, maximum=1 << 27),
        max_position_embeddings=raw.integer(
            "context_length", "max_position_embeddings", default=1024, minimum=1, maximum=1 << 31
        ),
        dtype=read_dtype(raw),
        tie_word_embeddings=raw.flag("tie_word_embeddings", default=False),
    )
    time_mixing = RwkvTimeMixing(
        size=raw.integer("attention_hidden_size", default=hidden, minimum=1, maximum=1 << 20), hidden_size=hidden
    )
    channel_mixing = Mlp(
        intermediate_size=raw.integer("intermediate_size", default=4 * hidden, minimum=1),
        gated=False,
        activation="relu2",
        names=MlpNames(block="feed_forward", up="key", down="value"),
    )
    extra = linear("feed_forward.receptance", hidden, hidden, Role.MLP)
    extra += tuple(Tensor(f"feed_forward.time_mix_{name}", (1, 1, hidden), Role.MLP) for name in ("key", "receptance"))
    layer = Layer(
        mixers=(time_mixing,),
        feed_forward=channel_mixing,
        norms=(layer_norm("ln1", hidden), layer_norm("ln2", hidden)),
        extra=extra,
    )
    first = replace(layer, norms=(layer_norm("pre_ln", hidden), *layer.norms))
    head = layer_norm("rwkv.ln_out", hidden).tensors()
    if not dims.tie_word_embeddings:
        head += (vocabulary_matrix("head.weight", dims.vocab_size, hidden, Role.LM_HEAD),)
    return assemble(
        raw,
        dims,
        (first,) + (layer,) * (dims.num_hidden_layers - 1),
        final_norm=None,
        head=head,
        layer_prefix="rwkv.blocks",
        embedding_name="rwkv.embeddings.weight",
    )
