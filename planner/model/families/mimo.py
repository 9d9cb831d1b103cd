"""MiMo-7B: Qwen2's layers, and draft layers that predict further tokens.

A draft layer norms the next token's embedding and the stack's output, joins them by a [H, 2H] matrix, and is a layer
of the same kind with a norm of its own behind. It uses the model's embedding and head.

transformers has no such class; names and sizes follow the checkpoints and vLLM 0.19 `mimo_mtp.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, layers_of, read_dimensions, read_rotary_dim
from planner.model.families.llama import sliding_windows
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor

_MOST_DRAFTS = 64


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a mimo config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw)
    hidden = dims.hidden_size
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=True)
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )
    norms = (Norm("input_layernorm", hidden), Norm("post_attention_layernorm", hidden))

    def layer(window: int | None) -> Layer:
        attention = attention_of(dims, rotary_dim=rotary_dim, sliding_window=window, bias=bias)
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    layers = layers_of(sliding_windows(raw, dims, "qwen2"), layer)
    drafts = raw.integer("num_nextn_predict_layers", default=0, maximum=_MOST_DRAFTS)
    draft = replace(
        layers[-1],
        norms=(
            *norms,
            Norm("token_layernorm", hidden),
            Norm("hidden_layernorm", hidden),
            Norm("final_layernorm", hidden),
        ),
        extra=(Tensor("input_proj.weight", (hidden, 2 * hidden), Role.DRAFT),),
    )
    spec = assemble(raw, dims, layers, final_norm=Norm("model.norm", hidden), rotary_dim=rotary_dim)
    return replace(spec, draft_layers=(draft,) * drafts)
