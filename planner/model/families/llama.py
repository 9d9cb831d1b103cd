"""Llama and its nearest relatives: pre-norm RMSNorm, rotary GQA, gated SiLU MLP.

llama, mistral: as published. qwen2 adds biases on q, k and v. qwen3 adds a norm on each query and key head.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    read_dimensions,
    read_rotary_dim,
    window_by_layer,
)
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a llama, mistral, qwen2 or qwen3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    model_type = raw.text("model_type", default="llama")
    dims = read_dimensions(raw, head_dim_default=128 if model_type == "qwen3" else None)
    attention_bias = model_type != "mistral" and raw.flag("attention_bias", default=False)
    head_norms = model_type == "qwen3"
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
        bias=raw.flag("mlp_bias", default=False) if model_type == "llama" else False,
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    kinds: dict[int | None, Layer] = {}
    for window in set(windows := sliding_windows(raw, dims, model_type)):
        attention = Attention(
            num_attention_heads=dims.num_attention_heads,
            num_key_value_heads=dims.num_key_value_heads,
            head_dim=dims.head_dim,
            rotary_dim=rotary_dim,
            sliding_window=window,
            query_bias=attention_bias or model_type == "qwen2",
            key_bias=attention_bias or model_type == "qwen2",
            value_bias=attention_bias or model_type == "qwen2",
            output_bias=attention_bias,
            query_norm=Norm("q_norm", dims.head_dim) if head_norms else None,
            key_norm=Norm("k_norm", dims.head_dim) if head_norms else None,
        )
        kinds[window] = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        tuple(kinds[window] for window in windows),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def sliding_windows(raw: RawConfig, dims: Dimensions, model_type: str) -> list[int | None]:
    """The window of each layer, None where a layer sees everything.

    Mistral windows every layer when sliding_window is set. Qwen windows only when use_sliding_window is true,
    and then the layers from max_window_layers on (transformers 5.24 Qwen2Config). Llama has no window.
    """
    count = dims.num_hidden_layers
    window = raw.optional_integer("sliding_window", minimum=1)
    first_windowed = raw.integer("max_window_layers", default=28 if model_type.startswith("qwen") else 0)
    uses_window = raw.flag("use_sliding_window", default=model_type == "mistral")
    types = window_by_layer(raw, count)
    if window is None or model_type == "llama" or not uses_window:
        return [None] * count
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    return [window if index >= first_windowed else None for index in range(count)]
