"""The GPT-2 line: LayerNorm, a plain MLP four times as wide, learned positions or early rotation.

gpt2      matrices stored as [in, out], query, key and value in one; learned positions
gpt_bigcode   GPT-2 with one key and value head; matrices stored as [out, in] (StarCoder)
gpt_neo   separate matrices; every other layer sees a window of 256; learned positions
gptj      attention and MLP side by side after one norm; 64 elements of each head rotate; the head has a bias

Source: transformers 5.24 `models/{gpt2,gpt_neo,gptj}`; vLLM 0.19 `gpt2.py`, `gpt_j.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import ConfigError
from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.decoder import (
    Dimensions,
    as_multi_head,
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    refuse,
)
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.rope import RopeTable
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, Tensor, layer_norm, vocabulary_matrix

_ROOT = "transformer"
_PROJECTIONS = MlpNames(up="c_fc", down="c_proj")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gpt2, gpt_neo or gptj config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: GPT-2 with cross attention.
    """
    model_type = raw.text("model_type", default="gpt2")
    dims = read_dimensions(
        raw,
        tie_default=model_type != "gptj",
        defaults={"max_position_embeddings": 1024 if model_type in ("gpt2", "gpt_bigcode") else 2048},
    )
    if model_type == "gpt_bigcode":
        return _bigcode(raw, dims)
    dims = as_multi_head(dims)
    if model_type == "gpt_neo":
        return _gpt_neo(raw, dims)
    return _gptj(raw, dims) if model_type == "gptj" else _gpt2(raw, dims)


def _gpt2(raw: RawConfig, dims: Dimensions) -> ModelSpec:
    if raw.flag("add_cross_attention", default=False):
        raise refuse(raw, "add_cross_attention", "is true; GPT-2 as the decoder of an encoder is not understood")
    attention = attention_of(
        dims,
        bias=True,
        output_bias=True,
        fused=True,
        input_first=True,
        names=AttentionNames(block="attn", fused="c_attn", output="c_proj"),
    )
    layer = Layer(
        mixers=(attention,),
        feed_forward=_mlp(raw, dims, _PROJECTIONS, input_first=True),
        norms=(layer_norm("ln_1", dims.hidden_size), layer_norm("ln_2", dims.hidden_size)),
    )
    return _assemble(raw, dims, (layer,) * dims.num_hidden_layers, learned_positions=True)


def _bigcode(raw: RawConfig, dims: Dimensions) -> ModelSpec:
    heads = 1 if raw.flag("multi_query", default=True) else dims.num_attention_heads
    attention = attention_of(
        replace(dims, num_key_value_heads=heads),
        bias=True,
        output_bias=True,
        fused=True,
        names=AttentionNames(block="attn", fused="c_attn", output="c_proj"),
    )
    layer = Layer(
        mixers=(attention,),
        feed_forward=_mlp(raw, dims, _PROJECTIONS),
        norms=(layer_norm("ln_1", dims.hidden_size), layer_norm("ln_2", dims.hidden_size)),
    )
    return _assemble(raw, dims, (layer,) * dims.num_hidden_layers, learned_positions=True)


def _gpt_neo(raw: RawConfig, dims: Dimensions) -> ModelSpec:
    window = raw.integer("window_size", default=256, minimum=1)
    mlp = _mlp(raw, dims, _PROJECTIONS)
    norms = (layer_norm("ln_1", dims.hidden_size), layer_norm("ln_2", dims.hidden_size))

    def layer(kind: str) -> Layer:
        attention = attention_of(
            dims,
            sliding_window=window if kind == "local" else None,
            output_bias=True,
            names=AttentionNames(block="attn.attention", output="out_proj"),
        )
        return Layer(mixers=(attention,), feed_forward=mlp, norms=norms)

    return _assemble(raw, dims, layers_of(_attention_types(raw, dims), layer), learned_positions=True)


def _gptj(raw: RawConfig, dims: Dimensions) -> ModelSpec:
    rotary_dim = raw.integer("rotary_dim", default=64, minimum=0, maximum=dims.head_dim) or dims.head_dim
    attention = attention_of(dims, rotary_dim=rotary_dim, names=AttentionNames(block="attn", output="out_proj"))
    layer = Layer(
        mixers=(attention,),
        feed_forward=_mlp(raw, dims, MlpNames(up="fc_in", down="fc_out")),
        norms=(layer_norm("ln_1", dims.hidden_size),),
    )
    tables = (RopeTable(dims.max_position_embeddings, rotary_dim),)
    return _assemble(raw, dims, (layer,) * dims.num_hidden_layers, head_bias=True, rope_tables=tables)


def _mlp(raw: RawConfig, dims: Dimensions, names: MlpNames, *, input_first: bool = False) -> Mlp:
    return Mlp(
        intermediate_size=raw.integer("n_inner", "intermediate_size", default=4 * dims.hidden_size, minimum=1),
        gated=False,
        activation=raw.text("activation_function", default="gelu_new"),
        bias=True,
        input_first=input_first,
        names=names,
    )


def _attention_types(raw: RawConfig, dims: Dimensions) -> list[str]:
    """ "global" or "local" for each layer, from [[kinds, repeats], ...] (transformers 5.24 GPTNeoConfig)."""
    kinds: list[str] = []
    for group in raw.items("attention_types") or [[["global", "local"], dims.num_hidden_layers // 2]]:
        if not isinstance(group, list) or len(group) != 2:
            raise _malformed(raw)
        names, repeats = group
        if not isinstance(names, list) or isinstance(repeats, bool) or not isinstance(repeats, int):
            raise _malformed(raw)
        if not 0 <= repeats <= LARGEST_LAYER_COUNT or len(names) > LARGEST_LAYER_COUNT:
            raise _malformed(raw)
        if any(name not in ("global", "local") for name in names):
            raise _malformed(raw)
        kinds += names * min(repeats, LARGEST_LAYER_COUNT)
        if len(kinds) > LARGEST_LAYER_COUNT:
            raise _malformed(raw)
    if len(kinds) != dims.num_hidden_layers:
        raise raw.error("attention_types", f"describes {len(kinds)} layers; num_layers is {dims.num_hidden_layers}")
    return kinds


def _malformed(raw: RawConfig) -> ConfigError:
    return raw.error("attention_types", 'must be groups of kinds and repeats, as [[["global", "local"], 12]]')


def _assemble(
    raw: RawConfig,
    dims: Dimensions,
    layers: tuple[Layer, ...],
    *,
    learned_positions: bool = False,
    head_bias: bool = False,
    rope_tables: tuple[RopeTable, ...] = (),
) -> ModelSpec:
    embeddings: tuple[Tensor, ...] = (
        vocabulary_matrix(f"{_ROOT}.wte.weight", dims.vocab_size, dims.hidden_size, Role.EMBEDDING),
    )
    if learned_positions:
        positions = (dims.max_position_embeddings, dims.hidden_size)
        embeddings += (Tensor(f"{_ROOT}.wpe.weight", positions, Role.POSITION),)
    return assemble(
        raw,
        dims,
        layers,
        final_norm=layer_norm(f"{_ROOT}.ln_f", dims.hidden_size),
        embeddings=embeddings,
        head_bias=head_bias,
        layer_prefix=f"{_ROOT}.h",
        rope_tables=rope_tables,
    )
