"""Phi-3, Phi-3.5 and Phi-4: Llama with query, key and value in one matrix and gate and up in another.

Source: transformers 5.24 `models/phi3`. A sliding_window applies to every layer; the 128k models state one
longer than any sequence.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a phi3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    window = raw.optional_integer("sliding_window", minimum=1)
    attention = attention_of(dims, rotary_dim=rotary_dim, sliding_window=window, fused=True)
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        fused=True,
        activation=raw.text("hidden_act", default="silu"),
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )
