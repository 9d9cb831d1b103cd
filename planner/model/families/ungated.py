"""Llama's attention before an MLP of two matrices: AFM, Apertus, Nemotron.

arcee      squared ReLU
apertus    xIELU, with two learned scalars a layer; a norm on each query and key head
nemotron   squared ReLU; LayerNorm with 1 + weight and a bias; half of each head rotates

Source: transformers 5.24 `models/{arcee,apertus,nemotron}`; xIELU is arXiv 2411.13010.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, layer_norm, vector


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an arcee, apertus or nemotron config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    model_type = raw.text("model_type", default="arcee")
    nemotron, apertus = model_type == "nemotron", model_type == "apertus"
    dims = read_dimensions(raw, defaults={"max_position_embeddings": 65_536 if apertus else 4096})
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.5 if nemotron else 1.0)
    bias = raw.flag("attention_bias", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        query_norm=Norm("q_norm", dims.head_dim) if apertus else None,
        key_norm=Norm("k_norm", dims.head_dim) if apertus else None,
    )
    activation = raw.text("hidden_act", default="xielu" if apertus else "relu2")
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        gated=False,
        activation=activation,
        bias=False if apertus else raw.flag("mlp_bias", default=False),
    )
    names = (
        ("attention_layernorm", "feedforward_layernorm") if apertus else ("input_layernorm", "post_attention_layernorm")
    )
    learned = ("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n") if activation == "xielu" else ()
    layer = Layer(
        mixers=(attention,),
        feed_forward=mlp,
        norms=tuple(_norm(name, dims.hidden_size, nemotron=nemotron) for name in names),
        extra=tuple(vector(name, 1, Role.MLP) for name in learned),
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=_norm("model.norm", dims.hidden_size, nemotron=nemotron),
        rotary_dim=rotary_dim,
    )


def _norm(name: str, size: int, *, nemotron: bool) -> Norm:
    return layer_norm(name, size) if nemotron else Norm(name, size)
