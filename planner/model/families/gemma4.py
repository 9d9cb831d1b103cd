"""Gemma 4, text: wide heads in the full layers, values from keys there, shared caches, per-layer inputs, experts.

gemma4          E2B and E4B share caches and have per-layer embeddings; 31B and 26B-A4B take values from keys in
                the full layers; 26B-A4B has routed experts beside the dense MLP of every layer
gemma4_unified  the same decoder without per-layer embeddings and experts, fed by raw patches and audio frames

Sources: transformers 5.24 gemma4, gemma4_unified (configuration_, modeling_); vLLM 0.19 models/gemma4.py, which
allocates key and value projections in every layer (the value copy of a value_from_key layer, and those of the
layers that share), and a rotary table over the whole head of the full layers (rotary_embedding/gemma4_rope.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, layers_of, read_dimensions, refuse
from planner.model.families.gemma_layers import (
    FULL,
    SLIDING,
    first_shared_layer,
    layer_embeddings,
    layer_inputs,
    layer_types,
    read_window,
)
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import FeedForward, Mlp, Moe, MoeNames
from planner.model.kinds.tower import parameter
from planner.model.rope import RopeTable, rope_parameters
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, vocabulary_matrix

_DEFAULTS: Mapping[str, int] = {
    "vocab_size": 262_144,
    "hidden_size": 2304,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}
_UNIFIED: Mapping[str, int] = {**_DEFAULTS, "max_position_embeddings": 262_144}
_ROTARY_FRACTION = {FULL: 0.25, SLIDING: 1.0}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gemma4_text or gemma4_unified_text config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    prefix = "model"
    unified = raw.text("model_type", default="gemma4_text") == "gemma4_unified_text"
    dims = read_dimensions(raw, tie_default=True, head_dim_default=256, defaults=_UNIFIED if unified else _DEFAULTS)
    types = layer_types(raw, dims.num_hidden_layers, pattern=6)
    types[-1] = FULL  # transformers makes the last layer full whatever the config says
    shared_from = first_shared_layer(raw, types, default=0)
    global_head_dim = raw.integer("global_head_dim", default=512, minimum=1, maximum=1 << 14)
    ple_width = 0 if unified else raw.integer("hidden_size_per_layer_input", default=256, maximum=1 << 14)
    raw.has("vocab_size_per_layer_input")  # only of use with per-layer embeddings
    make = _Maker(raw, dims, read_window(raw, default=1024 if unified else 512), global_head_dim, ple_width, unified)
    embeddings: tuple[Tensor, ...] = (
        vocabulary_matrix(f"{prefix}.embed_tokens.weight", dims.vocab_size, dims.hidden_size, Role.EMBEDDING),
    )
    if ple_width:
        embeddings += layer_embeddings(
            prefix,
            vocab_size=raw.integer("vocab_size_per_layer_input", default=262_144, minimum=1, maximum=1 << 27),
            layers=dims.num_hidden_layers,
            width=ple_width,
            hidden_size=dims.hidden_size,
        )
    keys = [_Key(kind, index >= shared_from) for index, kind in enumerate(types)]
    return assemble(
        raw,
        dims,
        layers_of(keys, make.layer),
        final_norm=Norm(f"{prefix}.norm", dims.hidden_size),
        embeddings=embeddings,
        layer_prefix=f"{prefix}.layers",
        rope_tables=tuple(
            RopeTable(dims.max_position_embeddings, global_head_dim if kind == FULL else dims.head_dim)
            for kind in dict.fromkeys(types)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Key:
    """What distinguishes one layer from another."""

    kind: str
    shared: bool


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes one layer of each kind."""

    raw: RawConfig
    dims: Dimensions
    window: int
    global_head_dim: int
    ple_width: int
    unified: bool

    def layer(self, key: _Key) -> Layer:
        """The layer of one key."""
        hidden = self.dims.hidden_size
        names = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ]
        feed_forward = self._feed_forward(key)
        extra: tuple[Tensor, ...] = ()
        if isinstance(feed_forward, Moe):
            names += ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
            extra += (
                parameter("router.scale", hidden, role=Role.ROUTER),
                parameter("router.per_expert_scale", feed_forward.num_experts, role=Role.ROUTER),
            )
        if self.ple_width:
            extra += layer_inputs(self.ple_width, hidden)
        return Layer(
            mixers=(self._attention(key),),
            feed_forward=feed_forward,
            norms=tuple(Norm(name, hidden) for name in names),
            extra=extra,
        )

    def _attention(self, key: _Key) -> Attention:
        raw, dims, full = self.raw, self.dims, key.kind == FULL
        values_are_keys = full and raw.flag("attention_k_eq_v", default=False)
        key_value_heads = dims.num_key_value_heads
        wide_heads = raw.optional_integer("num_global_key_value_heads", minimum=1, maximum=dims.num_attention_heads)
        if values_are_keys and wide_heads is not None:
            key_value_heads = wide_heads
        if dims.num_attention_heads % key_value_heads:
            raise raw.error(
                "num_global_key_value_heads",
                f"is {key_value_heads}, which does not divide num_attention_heads {dims.num_attention_heads}",
            )
        head_dim = self.global_head_dim if full else dims.head_dim
        bias = raw.flag("attention_bias", default=False)
        return Attention(
            num_attention_heads=dims.num_attention_heads,
            num_key_value_heads=key_value_heads,
            head_dim=head_dim,
            rotary_dim=int(head_dim * _rotary_fraction(raw, key.kind)),
            sliding_window=None if full else self.window,
            query_bias=bias,
            key_bias=bias,
            value_bias=bias,
            output_bias=bias,
            query_norm=Norm("q_norm", head_dim),
            key_norm=None if key.shared else Norm("k_norm", head_dim),
            owns_key_value=not key.shared,
            value_from_key=values_are_keys,
            keeps_cache=not key.shared,
        )

    def _feed_forward(self, key: _Key) -> FeedForward:
        raw = self.raw
        activation = raw.text("hidden_activation", default="gelu_pytorch_tanh")
        width = raw.integer("intermediate_size", default=9216, minimum=1, maximum=1 << 24)
        if key.shared and raw.flag("use_double_wide_mlp", default=False):
            width *= 2
        dense = Mlp(intermediate_size=width, activation=activation)
        if self.unified or not raw.flag("enable_moe_block", default=False):
            raw.has("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
            return dense
        experts = raw.integer("num_experts", minimum=1, maximum=1 << 16)
        return Moe(
            num_experts=experts,
            num_experts_per_tok=raw.integer("top_k_experts", minimum=1, maximum=experts),
            moe_intermediate_size=raw.integer(
                "moe_intermediate_size", "expert_intermediate_size", minimum=1, maximum=1 << 24
            ),
            activation=activation,
            shared=dense,
            names=MoeNames(block="", router="router.proj", experts="experts"),
        )


def _rotary_fraction(raw: RawConfig, kind: str) -> float:
    """The turned share of a head, from rope_parameters by layer type.

    Raises:
        ConfigError: outside [0, 1].
        UnsupportedArchitecture: a rope_type that is not understood.
    """
    by_type = rope_parameters(raw)
    section = by_type.section(kind) if by_type is not None else None
    if section is None:
        return _ROTARY_FRACTION[kind]
    rope_type = section.text("rope_type", default="default")
    if rope_type not in ("default", "proportional"):
        raise refuse(section, "rope_type", f"{rope_type[:40]!r} is not understood; expected default or proportional")
    fraction = section.number("partial_rotary_factor", default=1.0)
    if not 0 <= fraction <= 1:
        raise section.error("partial_rotary_factor", f"is {fraction}; expected 0 to 1")
    return fraction
