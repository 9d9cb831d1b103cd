"""EXAONE 3 and 4.

exaone    Llama under GPT-2's names
exaone4   norms after attention and MLP, a norm on each query and key head; in the large one three windowed layers to
          one full, and there the full ones do not rotate

Source: transformers 5.24 `models/{exaone,exaone4}`; the names of EXAONE 3 are its checkpoints'. A letter pattern
("LLLG": local, local, local, global) is read as the model's own code does: the last layer is global.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    sliding_by_layer,
)
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SLIDING_WINDOW = 4096


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an exaone or exaone4 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    return _exaone4(raw) if raw.text("model_type", default="exaone") == "exaone4" else _exaone3(raw)


def _exaone3(raw: RawConfig) -> ModelSpec:
    dims = read_dimensions(raw, defaults={"num_key_value_heads": 8})
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias,
        output_bias=bias,
        names=AttentionNames(block="attn.attention", output="out_proj"),
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", "activation_function", default="silu"),
        bias=raw.flag("mlp_bias", default=False),
        names=MlpNames(gate="c_fc_0", up="c_fc_1", down="c_proj"),
    )
    norms = (Norm("ln_1", dims.hidden_size), Norm("ln_2", dims.hidden_size))
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("transformer.ln_f", dims.hidden_size),
        rotary_dim=rotary_dim,
        layer_prefix="transformer.h",
        embedding_name="transformer.wte.weight",
    )


def _exaone4(raw: RawConfig) -> ModelSpec:
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = _SLIDING_WINDOW
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )
    norms = (Norm("post_attention_layernorm", dims.hidden_size), Norm("post_feedforward_layernorm", dims.hidden_size))

    def layer(sliding: bool) -> Layer:
        attention = attention_of(
            dims,
            rotary_dim=rotary_dim if sliding or window is None else 0,
            sliding_window=window if sliding else None,
            query_norm=Norm("q_norm", dims.head_dim),
            key_norm=Norm("k_norm", dims.head_dim),
        )
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    return assemble(
        raw,
        dims,
        layers_of(_sliding(raw, dims, window), layer),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def _sliding(raw: RawConfig, dims: Dimensions, window: int | None) -> list[bool]:
    """Whether each layer is windowed."""
    count = dims.num_hidden_layers
    pattern = raw.raw("sliding_window_pattern")
    sliding = sliding_by_layer(raw, count)
    if sliding is not None:
        return sliding
    if window is None:
        return [False] * count
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise raw.error("sliding_window_pattern", "must be a number or letters L (local) and G (global)")
        return [pattern[index % len(pattern)] == "L" and index < count - 1 for index in range(count)]
    period = raw.integer("sliding_window_pattern", default=4, minimum=1)
    return [bool((index + 1) % period) for index in range(count)]
