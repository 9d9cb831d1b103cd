"""Gemma 1 to 3, text: RMSNorm with 1 + weight, wide heads, gated GELU, a tied embedding.

gemma    two norms a layer, every layer sees everything
gemma2   four norms a layer, every other layer is windowed, the first one included
gemma3   as gemma2, norms on query and key heads, five windowed layers to one full, a rotary base for each

Source: the Gemma, Gemma 2 (arXiv 2408.00118) and Gemma 3 (arXiv 2503.19786) reports; defaults of absent keys from
transformers 5.24 `configuration_gemma*.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import REQUIRED, RawConfig
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
from planner.model.rope import RopeTable, rope_table, rope_tables_by_type
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

# What the config classes assume; the sizes of the stack only count inside another config (text_config), where
# transformers leaves out what equals them.
_DEFAULTS = {
    "gemma": {"num_key_value_heads": 16, "max_position_embeddings": 8192},
    "gemma2": {"num_key_value_heads": 4, "max_position_embeddings": 8192},
    "gemma3_text": {"num_key_value_heads": 4, "max_position_embeddings": 131_072},
}
_NESTED_DEFAULTS = {
    "gemma": {
        "hidden_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "vocab_size": 256_000,
        "intermediate_size": 24_576,
    },
    "gemma2": {
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "vocab_size": 256_000,
        "intermediate_size": 9216,
    },
    "gemma3_text": {
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "vocab_size": 262_208,
        "intermediate_size": 9216,
    },
}
_HEAD_DIM = 256
_SLIDING_WINDOW = 4096
_PATTERN = {"gemma2": 2, "gemma3_text": 6}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gemma, gemma2 or gemma3_text config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    return text_model(raw, raw.text("model_type", default="gemma"))


def text_model(raw: RawConfig, model_type: str, *, prefix: str = "model", nested: bool = False) -> ModelSpec:
    """The decoder of a Gemma model, alone or inside a multimodal one.

    Args:
        raw: the config, or the text_config of a gemma3 config.
        model_type: "gemma", "gemma2" or "gemma3_text".
        prefix: name of the decoder ("model.language_model" inside Gemma 3).
        nested: `raw` is a text_config, which leaves out what equals the class default.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    defaults = _DEFAULTS[model_type] | (_NESTED_DEFAULTS[model_type] if nested else {})
    dims = read_dimensions(raw, tie_default=True, head_dim_default=_HEAD_DIM, defaults=defaults)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    bias = raw.flag("attention_bias", default=False)
    head_norms = model_type == "gemma3_text"
    both_ways = _looks_both_ways(raw)
    mlp = Mlp(
        intermediate_size=raw.integer(
            "intermediate_size", default=defaults.get("intermediate_size", REQUIRED), minimum=1
        ),
        activation=raw.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh"),
    )
    names = ["input_layernorm", "post_attention_layernorm"]
    if model_type != "gemma":
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    norms = tuple(Norm(name, dims.hidden_size, "rms_offset") for name in names)

    def layer(window: int | None) -> Layer:
        attention = attention_of(
            dims,
            rotary_dim=rotary_dim,
            sliding_window=window,
            bias=bias,
            output_bias=bias,
            query_norm=Norm("q_norm", dims.head_dim, "rms_offset") if head_norms else None,
            key_norm=Norm("k_norm", dims.head_dim, "rms_offset") if head_norms else None,
            causal=not both_ways,
        )
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    spec = assemble(
        raw,
        dims,
        layers_of(_windows(raw, dims, model_type), layer),
        final_norm=Norm(f"{prefix}.norm", dims.hidden_size, "rms_offset"),
        layer_prefix=f"{prefix}.layers",
        embedding_name=f"{prefix}.embed_tokens.weight",
        rope_tables=_rope_tables(raw, dims, model_type, rotary_dim),
    )
    return replace(spec, decoder=not both_ways)


def _looks_both_ways(raw: RawConfig) -> bool:
    """EmbeddingGemma is an encoder: every token sees every other, and nothing is kept (vLLM 0.19 `gemma3.py`)."""
    return raw.flag("use_bidirectional_attention", default=False)


def _windows(raw: RawConfig, dims: Dimensions, model_type: str) -> list[int | None]:
    count = dims.num_hidden_layers
    if model_type == "gemma":
        return [None] * count
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and not raw.given("sliding_window"):
        window = _SLIDING_WINDOW
    if window is not None and _looks_both_ways(raw):
        window = window // 2 + 1  # transformers 5.24 Gemma3TextConfig: the window then reaches both ways
    pattern = _PATTERN[model_type]
    if model_type == "gemma3_text":
        pattern = raw.integer("sliding_window_pattern", "_sliding_window_pattern", default=pattern, minimum=1)
    sliding = sliding_by_layer(raw, count)
    if sliding is None:
        return [window if (index + 1) % pattern else None for index in range(count)]
    return [window if windowed else None for windowed in sliding]


def _rope_tables(raw: RawConfig, dims: Dimensions, model_type: str, rotary_dim: int) -> tuple[RopeTable, ...]:
    positions = dims.max_position_embeddings
    if model_type != "gemma3_text":
        return (rope_table(raw, rotary_dim=rotary_dim, max_position_embeddings=positions),)
    return rope_tables_by_type(raw, rotary_dim=rotary_dim, max_position_embeddings=positions, same_base=False)
