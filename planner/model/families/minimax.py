"""MiniMax-Text-01 and MiniMax-M1: lightning attention, full attention in one layer of eight, Mixtral-like experts.

The transformers port says `minimax` and lists `layer_types`; the original says `minimax_m1` (or minimax_text_01) and
lists `attn_type_list`, 0 lightning and 1 full.

Source: transformers 5.24 configuration_minimax, modeling_minimax; vLLM 0.19.1 models/minimax_text_01.py.
"""

from __future__ import annotations

from planner.errors import UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, read_dimensions, read_rotary_dim
from planner.model.families.recurrent import FULL, LINEAR, check_layer_types, refuse_unless, stack
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Moe, MoeNames
from planner.model.kinds.lightning import LightningAttention
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a minimax or minimax_m1 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    dims = read_dimensions(raw)
    if raw.has("sliding_window"):
        raise UnsupportedArchitecture(
            f"{raw.path}: sliding_window is not understood in minimax", field="sliding_window"
        )
    refuse_unless(raw, "shared_intermediate_size", 0)
    rotary_dim = raw.integer("rotary_dim", default=read_rotary_dim(raw, dims.head_dim), maximum=dims.head_dim)
    attention = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=rotary_dim,
    )
    lightning = LightningAttention(
        num_heads=dims.num_attention_heads,
        head_dim=dims.head_dim,
        block_size=raw.integer("block_size", default=256, minimum=1, maximum=1 << 16),
    )
    experts = raw.integer("num_local_experts", "num_experts", default=8, minimum=1, maximum=1 << 16)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("num_experts_per_tok", default=2, minimum=1, maximum=experts),
        moe_intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
        names=MoeNames(block="block_sparse_moe"),
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))
    layers = stack(
        types := _layer_types(raw, dims.num_hidden_layers),
        lambda kind: Layer(mixers=(attention if kind == FULL else lightning,), feed_forward=moe, norms=norms),
    )
    return assemble(
        raw,
        dims,
        layers,
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim if FULL in types else 0,
    )


def _layer_types(raw: RawConfig, count: int) -> list[str]:
    """Either list, or the transformers default: full attention in the first layer of every two.

    Raises:
        ConfigError: the original's config without its list, which has no default.
    """
    types = raw.texts("layer_types", length=count)
    numbers = raw.integers("attn_type_list", length=count)
    if types is not None:
        return check_layer_types(raw, "layer_types", types, (LINEAR, FULL))
    if numbers is not None:
        if not set(numbers) <= {0, 1}:
            raise raw.error("attn_type_list", f"holds {max(numbers)}; expected 0 (lightning) or 1 (full)")
        return [FULL if number else LINEAR for number in numbers]
    if raw.text("model_type", default="minimax") != "minimax":
        raise raw.error("attn_type_list", "is missing; it is needed to size the cache")
    return [LINEAR if index % 2 else FULL for index in range(count)]
