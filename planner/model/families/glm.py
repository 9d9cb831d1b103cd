"""GLM-4 (glm) and GLM-4-0414 (glm4): few key and value heads, gate and up in one matrix, half of each head rotates.

glm4 adds a norm after attention and one after the MLP.

Source: transformers 5.24 `models/{glm,glm4}`.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a glm or glm4 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(
        raw, head_dim_default=128, defaults={"num_key_value_heads": 2, "max_position_embeddings": 131_072}
    )
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.5)
    attention = attention_of(dims, rotary_dim=rotary_dim, bias=raw.flag("attention_bias", default=True))
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        fused=True,
        activation=raw.text("hidden_act", default="silu"),
    )
    names = ["input_layernorm", "post_attention_layernorm"]
    if raw.text("model_type", default="glm") == "glm4":
        names += ["post_self_attn_layernorm", "post_mlp_layernorm"]
    norms = tuple(Norm(name, dims.hidden_size) for name in names)
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )
