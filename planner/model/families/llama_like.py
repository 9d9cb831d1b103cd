"""Models built like Llama down to the names, that differ in biases, head norms, windows or where rotation stops.

granite, minicpm      Llama (their multipliers are not weights)
ministral, ministral3 Llama; a window for all layers, or for those layer_types names
internlm              biases on all four projections, by its own key
internlm3, ernie4_5   biases under their own keys
cwm                   a window in three of four layers
seed_oss              biases on q, k and v, on the output by its own key
hunyuan_v1_dense      a norm on each query and key head
smollm3               every fourth layer does not rotate

Source: transformers 5.24, the configuration and modeling module of each model type; InternLM3's biases from its own
modeling code (transformers only takes configs where the two are equal).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    refuse,
    sliding_by_layer,
)
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """How one model type differs from Llama: keys of its biases (first present wins) and class defaults."""

    query_bias: tuple[str, ...] = ("attention_bias",)
    output_bias: tuple[str, ...] = ("attention_bias",)
    mlp_bias: tuple[str, ...] = ("mlp_bias",)
    query_bias_default: bool = False
    output_bias_default: bool = False
    tie_default: bool = False
    head_dim_default: int | None = None
    defaults: Mapping[str, int] = field(default_factory=dict)


_VARIANTS = {
    "granite": _Variant(),
    "minicpm": _Variant(query_bias=(), output_bias=(), mlp_bias=(), tie_default=True),
    "ministral": _Variant(
        query_bias=(),
        output_bias=(),
        mlp_bias=(),
        defaults={"num_key_value_heads": 8, "max_position_embeddings": 131_072},
    ),
    "ministral3": _Variant(
        query_bias=(),
        output_bias=(),
        mlp_bias=(),
        head_dim_default=128,
        defaults={"num_key_value_heads": 8, "max_position_embeddings": 262_144},
    ),
    "internlm": _Variant(
        query_bias=("bias",),
        output_bias=("bias",),
        mlp_bias=(),
        query_bias_default=True,
        output_bias_default=True,
    ),
    "cwm": _Variant(
        query_bias=(),
        output_bias=(),
        head_dim_default=128,
        defaults={"num_key_value_heads": 8, "max_position_embeddings": 131_072},
    ),
    "internlm3": _Variant(
        query_bias=("qkv_bias", "attention_bias"),
        output_bias=("bias", "attention_bias"),
        mlp_bias=("bias", "mlp_bias"),
        head_dim_default=128,
        defaults={"num_key_value_heads": 2, "max_position_embeddings": 32_768},
    ),
    "ernie4_5": _Variant(
        query_bias=("use_bias",),
        output_bias=("use_bias",),
        mlp_bias=("use_bias",),
        tie_default=True,
        head_dim_default=128,
        defaults={"num_key_value_heads": 2, "max_position_embeddings": 131_072},
    ),
    "seed_oss": _Variant(
        output_bias=("attention_out_bias",),
        query_bias_default=True,
        head_dim_default=128,
        defaults={"num_key_value_heads": 8, "max_position_embeddings": 524_288},
    ),
    "hunyuan_v1_dense": _Variant(mlp_bias=()),
    "smollm3": _Variant(tie_default=True, defaults={"num_key_value_heads": 4, "max_position_embeddings": 32_768}),
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a config of one of the model types above.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: Hunyuan layers that share keys and values (use_cla).
    """
    model_type = raw.text("model_type", default="granite")
    variant = _VARIANTS.get(model_type, _VARIANTS["granite"])
    if raw.integer("num_experts", default=0, maximum=1 << 16):
        raise refuse(raw, "num_experts", "is not 0; MiniCPM's mixture of experts is not modelled")
    head_dim = raw.optional_integer("attention_head_dim", minimum=1, maximum=1 << 14)
    dims = read_dimensions(
        raw,
        tie_default=variant.tie_default,
        head_dim_default=head_dim or variant.head_dim_default,
        defaults=variant.defaults,
    )
    head_norms = model_type == "hunyuan_v1_dense" and _hunyuan_head_norms(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    query_bias = _bias(raw, variant.query_bias, default=variant.query_bias_default)
    output_bias = _bias(raw, variant.output_bias, default=variant.output_bias_default)
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
        bias=_bias(raw, variant.mlp_bias),
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))

    def layer(kind: tuple[bool, int | None]) -> Layer:
        rotates, window = kind
        attention = attention_of(
            dims,
            rotary_dim=rotary_dim if rotates else 0,
            sliding_window=window,
            bias=query_bias,
            output_bias=output_bias,
            query_norm=Norm("query_layernorm", dims.head_dim) if head_norms else None,
            key_norm=Norm("key_layernorm", dims.head_dim) if head_norms else None,
        )
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    rotations = _rotations(raw, dims, model_type)
    windows = _windows(raw, dims, model_type, rotations)
    return assemble(
        raw,
        dims,
        layers_of(list(zip(rotations, windows, strict=True)), layer),
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def _bias(raw: RawConfig, keys: tuple[str, ...], *, default: bool = False) -> bool:
    return raw.flag(*keys, default=default) if keys else False


def _hunyuan_head_norms(raw: RawConfig) -> bool:
    if raw.flag("use_cla", default=False):
        raise refuse(raw, "use_cla", "is true; layers that share keys and values are not understood for Hunyuan")
    return raw.flag("use_qk_norm", default=True)


def _rotations(raw: RawConfig, dims: Dimensions, model_type: str) -> list[bool]:
    """Whether each layer rotates: all do, but for SmolLM3's no_rope_layers (1 rotates, 0 does not)."""
    count = dims.num_hidden_layers
    if model_type != "smollm3":
        return [True] * count
    listed = raw.integers("no_rope_layers", length=count)
    if listed is not None:
        return [bool(value) for value in listed]
    interval = raw.integer("no_rope_layer_interval", default=4, minimum=1)
    return [bool((index + 1) % interval) for index in range(count)]


def _windows(raw: RawConfig, dims: Dimensions, model_type: str, rotations: list[bool]) -> list[int | None]:
    """Ministral windows every layer when sliding_window is set, SmolLM3 those that do not rotate, if at all."""
    count = dims.num_hidden_layers
    if model_type == "cwm":
        width = raw.integer("sliding_window", default=8192, minimum=1)
        listed = sliding_by_layer(raw, count) or [bool(index % 4) for index in range(count)]
        return [width if windowed else None for windowed in listed]
    if model_type not in ("ministral", "ministral3", "smollm3"):
        return [None] * count
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and model_type == "ministral" and not raw.given("sliding_window"):
        window = 4096
    sliding = sliding_by_layer(raw, count)
    raw.has("max_window_layers")  # SmolLM3 configs state it; its layers are windowed by no_rope_layers
    if model_type == "smollm3" and not raw.flag("use_sliding_window", default=False):
        window = None
    if window is None:
        return [None] * count
    if sliding is not None:
        return [window if windowed else None for windowed in sliding]
    if model_type == "smollm3":
        return [None if rotates else window for rotates in rotations]
    return [window] * count
