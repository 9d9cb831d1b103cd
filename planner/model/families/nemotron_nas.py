"""Llama-Nemotron Super and Ultra (DeciLM): a Llama whose blocks a search has thinned out, each in its own way.

block_configs has one entry a layer:
    attention   n_heads_in_group query heads to a key head, or no_op (no attention and no norm before it), or
                replace_with_linear (one [H, H] matrix)
    ffn         ffn_mult, from which the inner width follows, or no_op, or replace_with_linear

A layer without attention keeps no cache. transformers has no such class; sizes follow the model's own code and vLLM
0.19 `nemotron_nas.py`, and the totals the published ones. arXiv 2411.19146, 2505.00949.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.model.config import RawConfig
from planner.model.families.decoder import (
    Dimensions,
    assemble,
    attention_of,
    layers_of,
    read_dimensions,
    read_rotary_dim,
    refuse,
)
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, linear

_WIDTH_MULTIPLE = 256
_LARGEST_MULT = 1024.0


@dataclass(frozen=True, slots=True)
class _Block:
    """One entry of block_configs: None for what is left out, 0 heads or width for what a matrix replaces."""

    key_value_heads: int | None
    sliding_window: int | None
    intermediate_size: int | None
    activation: str


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a nemotron-nas config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: sparsified blocks, attention sinks or blocks side by side.
    """
    dims = read_dimensions(raw)
    rotary_dim = read_rotary_dim(raw, dims.head_dim)
    attention_bias = raw.flag("attention_bias", default=False)
    mlp_bias = raw.flag("mlp_bias", default=False)
    hidden = dims.hidden_size

    def layer(block: _Block) -> Layer:
        norms: tuple[Norm, ...] = ()
        extra: tuple[Tensor, ...] = ()
        mixers: tuple[Attention, ...] = ()
        feed_forward: Mlp | None = None
        if block.key_value_heads is not None:
            norms += (Norm("input_layernorm", hidden),)
            if block.key_value_heads:
                own = replace(dims, num_key_value_heads=block.key_value_heads)
                mixers = (
                    attention_of(
                        own,
                        rotary_dim=rotary_dim,
                        sliding_window=block.sliding_window,
                        bias=attention_bias,
                        output_bias=attention_bias,
                    ),
                )
            else:
                extra += linear("self_attn.linear_attn", hidden, hidden, Role.ATTENTION, bias=attention_bias)
        if block.intermediate_size is not None:
            norms += (Norm("post_attention_layernorm", hidden),)
            if block.intermediate_size:
                feed_forward = Mlp(
                    intermediate_size=block.intermediate_size, activation=block.activation, bias=mlp_bias
                )
            else:
                extra += linear("mlp.linear_mlp", hidden, hidden, Role.MLP, bias=mlp_bias)
        return Layer(mixers=mixers, feed_forward=feed_forward, norms=norms, extra=extra)

    return assemble(
        raw,
        dims,
        layers_of(_blocks(raw, dims), layer),
        final_norm=Norm("model.norm", hidden),
        rotary_dim=rotary_dim,
    )


def _blocks(raw: RawConfig, dims: Dimensions) -> list[_Block]:
    entries = raw.items("block_configs", length=dims.num_hidden_layers)
    if entries is None:
        raise raw.error("block_configs", "is missing; it is needed to size the layers")
    activation = raw.text("hidden_act", default="silu")
    blocks = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise raw.error("block_configs", f"entry {index} must be an object")
        block = RawConfig(entry, path=f"{raw.path}: block_configs[{index}]")
        if block.has("parallel_blocks"):
            raise refuse(block, "parallel_blocks", "is set; blocks side by side are not understood")
        attention, ffn = block.section("attention"), block.section("ffn")
        if attention is None or ffn is None:
            raise raw.error("block_configs", f"entry {index} must have attention and ffn")
        heads, window = _attention(attention, dims)
        width = _width(ffn, dims.hidden_size)
        blocks.append(_Block(heads, window, width, ffn.text("hidden_act", default=activation)))
    return blocks


def _attention(section: RawConfig, dims: Dimensions) -> tuple[int | None, int | None]:
    """Key and value heads (None: no attention, 0: one matrix instead) and the window."""
    if section.flag("no_op", default=False):
        return None, None
    if section.flag("replace_with_linear", default=False):
        return 0, None
    for field in ("sparsify", "num_sink_tokens"):
        if section.has(field):
            raise refuse(section, field, "is set; it is not understood")
    group = section.integer("n_heads_in_group", minimum=1)
    if dims.num_attention_heads % group:
        raise section.error(
            "n_heads_in_group", f"is {group}, which does not divide num_attention_heads {dims.num_attention_heads}"
        )
    return dims.num_attention_heads // group, section.optional_integer("window_length", minimum=1)


def _width(section: RawConfig, hidden_size: int) -> int | None:
    """The MLP's inner width (None: no MLP, 0: one matrix instead): 2/3 x ffn_mult x H, up to a multiple of 256."""
    if section.flag("no_op", default=False):
        return None
    if section.flag("replace_with_linear", default=False):
        return 0
    if section.has("sparsify"):
        raise refuse(section, "sparsify", "is set; it is not understood")
    if not section.has("ffn_mult"):
        return section.integer("intermediate_size", minimum=1)
    mult = section.number("ffn_mult")
    if not 0 < mult <= _LARGEST_MULT:
        raise section.error("ffn_mult", f"is {mult}; expected above 0 and at most {_LARGEST_MULT:,.0f}")
    return -(-int(2 * mult * hidden_size / 3) // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE
