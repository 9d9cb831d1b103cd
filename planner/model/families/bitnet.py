"""BitNet b1.58: Llama with a norm before each output matrix, squared ReLU, ternary matrices in the packed release.

Source: arXiv 2402.17764; transformers 5.24 models/bitnet (configuration_, modeling_).
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES = {
    "vocab_size": 128_256,
    "hidden_size": 2560,
    "num_hidden_layers": 30,
    "num_attention_heads": 20,
    "num_key_value_heads": 5,
    "max_position_embeddings": 2048,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a bitnet config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw, tie_default=False, defaults=_SIZES)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    inner = raw.integer("intermediate_size", default=6912, minimum=1)
    norms = (
        Norm("input_layernorm", dims.hidden_size),
        Norm("post_attention_layernorm", dims.hidden_size),
        Norm("self_attn.attn_sub_norm", dims.hidden_size),
        Norm("mlp.ffn_sub_norm", inner),
    )
    layer = Layer(
        mixers=(attention_of(dims, rotary_dim=rotary_dim, bias=bias, output_bias=bias),),
        feed_forward=Mlp(intermediate_size=inner, activation=raw.text("hidden_act", default="relu2")),
        norms=norms,
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )
