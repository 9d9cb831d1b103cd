"""Llama and its nearest relatives: pre-norm RMSNorm, rotary GQA, gated SiLU MLP.

llama, mistral: as published. qwen2 adds biases on q, k and v. qwen3 adds a norm on each query and key head.
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
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

# Sizes the config classes of transformers 5.24 assume when absent; Llama has as many key as query heads.
_DEFAULTS = {
    "mistral": {"num_key_value_heads": 8, "max_position_embeddings": 131_072},
    "qwen2": {"num_key_value_heads": 32, "max_position_embeddings": 32_768},
    "qwen3": {"num_key_value_heads": 32, "max_position_embeddings": 32_768},
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a llama, mistral, qwen2 or qwen3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    model_type = raw.text("model_type", default="llama")
    dims = read_dimensions(
        raw, head_dim_default=128 if model_type == "qwen3" else None, defaults=_DEFAULTS.get(model_type, {})
    )
    # Mistral has no biases and Qwen2 always the same three, whatever attention_bias says
    declared = model_type in ("llama", "qwen3") and raw.flag("attention_bias", default=False)
    head_norms = model_type == "qwen3"
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
        bias=raw.flag("mlp_bias", default=False) if model_type == "llama" else False,
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))
    rotary_dim = read_rotary_dim(raw, dims.head_dim)

    def layer(window: int | None) -> Layer:
        attention = attention_of(
            dims,
            rotary_dim=rotary_dim,
            sliding_window=window,
            bias=declared or model_type == "qwen2",
            output_bias=declared,
            query_norm=Norm("q_norm", dims.head_dim) if head_norms else None,
            key_norm=Norm("k_norm", dims.head_dim) if head_norms else None,
        )
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    return assemble(
        raw,
        dims,
        layers_of(sliding_windows(raw, dims, model_type), layer),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def sliding_windows(raw: RawConfig, dims: Dimensions, model_type: str) -> list[int | None]:
    """The window of each layer, None where a layer sees everything.

    Mistral windows every layer when sliding_window is set, and to 4,096 when the key is absent (null sets none).
    Qwen windows only when use_sliding_window is true, and then the layers from max_window_layers on (transformers
    5.24 MistralConfig, Qwen2Config). Llama has no window.
    """
    count = dims.num_hidden_layers
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = 4096
    first_windowed = raw.integer("max_window_layers", default=28 if model_type.startswith("qwen") else 0)
    uses_window = raw.flag("use_sliding_window", default=model_type == "mistral")
    sliding = sliding_by_layer(raw, count)
    if window is None or model_type == "llama" or not uses_window:
        return [None] * count
    if sliding is not None:
        return [window if windowed else None for windowed in sliding]
    return [window if index >= first_windowed else None for index in range(count)]
