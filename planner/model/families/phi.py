"""Phi-1 to Phi-2: LayerNorm, attention and a plain MLP side by side, biases everywhere, the head included.

Source: transformers 5.24 `models/phi`.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a phi config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.5)
    head_norms = raw.flag("qk_layernorm", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=True,
        output_bias=True,
        query_norm=layer_norm("q_layernorm", dims.head_dim) if head_norms else None,
        key_norm=layer_norm("k_layernorm", dims.head_dim) if head_norms else None,
        names=AttentionNames(output="dense"),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", "n_inner", default=4 * dims.hidden_size, minimum=1),
        gated=False,
        activation=raw.text("hidden_act", default="gelu_new"),
        bias=True,
        names=MlpNames(up="fc1", down="fc2"),
    )
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=(layer_norm("input_layernorm", dims.hidden_size),))
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("model.final_layernorm", dims.hidden_size),
        rotary_dim=rotary_dim,
        head_bias=True,
    )
