"""StarCoder2: LayerNorm, rotary GQA with biases, a plain MLP under GPT-2's names, one window for all layers.

Source: transformers 5.24 `models/starcoder2`; arXiv 2402.19173.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a starcoder2 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw, tie_default=True, defaults={"num_key_value_heads": 2, "max_position_embeddings": 4096})
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("use_bias", default=True)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        sliding_window=raw.optional_integer("sliding_window", minimum=1),
        bias=bias,
        output_bias=bias,
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        gated=False,
        activation=raw.text("hidden_act", default="gelu_pytorch_tanh"),
        bias=bias,
        names=MlpNames(up="c_fc", down="c_proj"),
    )
    norms = (
        layer_norm("input_layernorm", dims.hidden_size),
        layer_norm("post_attention_layernorm", dims.hidden_size),
    )
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )
