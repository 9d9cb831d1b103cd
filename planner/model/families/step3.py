"""Step 3.5 and 3.7 Flash: three windowed layers, with more query heads, to one that sees everything; a gate on every
head's output; experts after the first dense layers; windowed draft layers with heads of their own. 3.7 sees images.

A config either nests the decoder in text_config or, in some copies, states its keys at the top. The draft layers that
the checkpoint ships are dense, windowed, and each has its own output matrix: the published total of Step-3.7-Flash is
this decoder with 96 heads in windowed layers, the tower, and three such layers, to the last score correction.

Sources: transformers 5.24 configuration_, modeling_ and image_processing_step3p7; vLLM 0.19.1 models/step3p5.py (router
kept in fp32); vLLM 0.33.0 models/step3p5.py, step3p5_mtp.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, layers_of, read_dimensions, refuse
from planner.model.families.experts import (
    SPARSE,
    draft_count,
    draft_layer,
    pre_norms,
    read_expert_counts,
    read_width,
    shared_experts,
)
from planner.model.families.nested import multimodal, renamed
from planner.model.families.recurrent import check_layer_types
from planner.model.families.step3_vision import tower
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe, MoeNames
from planner.model.rope import RopeTable, rope_table
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, vocabulary_matrix

_SIZES: Final = {
    "vocab_size": 128815,
    "hidden_size": 4096,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128000,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_DENSE_LAYERS = 3
_WHOLE_MODEL = ("architectures", "tie_word_embeddings", "dtype", "torch_dtype", "quantization_config")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a step3p5 (text) or step3p7 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    if raw.text("model_type", default="step3p5") == "step3p5":
        return _text(raw)
    section = raw.section("text_config")
    values: dict[str, object] = dict(raw.mapping()) if section is None else dict(section.mapping())
    if section is not None:
        outer = raw.mapping()
        values.pop("architectures", None)
        values.update({key: outer[key] for key in _WHOLE_MODEL if outer.get(key) is not None})
        raw.has(*_WHOLE_MODEL)
    text = _text(RawConfig(values, path=f"{raw.path}: text_config" if section is not None else raw.path))
    vision = raw.section("vision_config") or RawConfig({}, path=f"{raw.path}: vision_config")
    stack = tower(vision, text.hidden_size, bias=raw.flag("projector_bias", default=False))
    return multimodal(raw, renamed(text, prefix="model.language_model"), (stack,), vision)


def _text(raw: RawConfig) -> ModelSpec:
    plain: Mapping[str, object] = {
        ("num_key_value_heads" if key == "num_attention_groups" else key): value
        for key, value in raw.mapping().items()
        if key != "num_attention_groups" or "num_key_value_heads" not in raw.mapping()
    }
    raw = RawConfig(plain, path=raw.path)
    dims = read_dimensions(raw, head_dim_default=128, defaults=_SIZES)
    hidden, count = dims.hidden_size, dims.num_hidden_layers
    drafts = draft_count(raw)
    types = _layer_types(raw, count + drafts)
    full, sliding = _attentions(raw, dims, types)
    dense, moe = _feed_forwards(raw)

    def layer(key: tuple[str, bool]) -> Layer:
        kind, sparse = key
        return Layer(
            mixers=(sliding if kind == _SLIDING else full,),
            feed_forward=moe if sparse else dense,
            norms=pre_norms(hidden, "rms_offset"),
        )

    sparse = _sparse_layers(raw, count)
    spec = assemble(
        raw,
        dims,
        layers_of(list(zip(types[:count], sparse, strict=True)), layer),
        final_norm=Norm("model.norm", hidden, "rms_offset"),
        rope_tables=_rope_tables(raw, dims, types, full, sliding),
    )
    draft = draft_layer((sliding if _SLIDING in types else full,), dense, hidden, "rms_offset")
    own_head = vocabulary_matrix("shared_head.output.weight", dims.vocab_size, hidden, Role.LM_HEAD)
    return replace(spec, draft_layers=(replace(draft, extra=(*draft.extra, own_head)),) * drafts)


def _attentions(raw: RawConfig, dims: Dimensions, types: list[str]) -> tuple[Attention, Attention]:
    """The attention of a layer that sees everything, and of a windowed one; both end in a gate for each head."""
    bias = raw.flag("attention_bias", default=False)
    gating = raw.raw("gating")
    if gating not in (None, True, "per-head") or raw.raw("use_head_wise_attn_gate") is False:
        raise refuse(raw, "gating", "selects another gate; only one for each head is understood")
    other = raw.section("attention_other_setting")
    heads = dims.num_attention_heads
    if other is not None and other.text("attention_type", default=_SLIDING) == _SLIDING:
        heads = other.integer("num_attention_heads", default=heads, minimum=1, maximum=1 << 14)
    heads = raw.integer("num_sliding_attention_heads", default=heads, minimum=1, maximum=1 << 14)
    if heads % dims.num_key_value_heads:
        raise raw.error(
            "num_sliding_attention_heads", f"is {heads}, not a multiple of the {dims.num_key_value_heads} key heads"
        )
    window = raw.optional_integer("sliding_window", minimum=1)
    if window is None and _SLIDING in types:
        raise raw.error("sliding_window", "is missing; layer_types has windowed layers")
    full = Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=_rotary_dim(raw, dims, types, _FULL),
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=bias,
        query_norm=Norm("q_norm", dims.head_dim, "rms_offset"),
        key_norm=Norm("k_norm", dims.head_dim, "rms_offset"),
        head_gate=True,
    )
    sliding = replace(
        full,
        num_attention_heads=heads,
        rotary_dim=_rotary_dim(raw, dims, types, _SLIDING),
        sliding_window=window,
    )
    return full, sliding


def _layer_types(raw: RawConfig, count: int) -> list[str]:
    """The type of each layer and draft layer; a list that ends before the drafts leaves them windowed.

    Raises:
        ConfigError: fewer entries than layers.
        UnsupportedArchitecture: a type that is not understood.
    """
    types = raw.texts("layer_types")
    if types is None:
        return [_FULL] * count
    check_layer_types(raw, "layer_types", types, (_FULL, _SLIDING))
    types = types + (raw.texts("mtp_layer_types") or [])
    needed = raw.integer("num_hidden_layers", "num_layers", default=_SIZES["num_hidden_layers"])
    if len(types) < needed:
        raise raw.error("layer_types", f"has {len(types)} entries; expected {needed}")
    return (types + [_SLIDING if _SLIDING in types else _FULL] * count)[:count]


def _rotary_dim(raw: RawConfig, dims: Dimensions, types: list[str], kind: str) -> int:
    """Elements of a head that rotate in layers of this type: by `rope_parameters` of the type, else by the entry of
    `partial_rotary_factors` of any layer of it.

    Raises:
        ConfigError: a factor outside [0, 1].
    """
    nested = raw.section("rope_parameters")
    section = nested.section(kind) if nested is not None and nested.has(kind) else None
    factors = raw.items("partial_rotary_factors")
    fraction: object = 1.0
    if section is not None:
        fraction = section.number("partial_rotary_factor", default=1.0)
    elif factors and kind in types and types.index(kind) < len(factors):
        fraction = factors[types.index(kind)]
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise raw.error("partial_rotary_factors", "holds something other than a number from 0 to 1")
    return int(dims.head_dim * fraction)


def _rope_tables(
    raw: RawConfig, dims: Dimensions, types: list[str], full: Attention, sliding: Attention
) -> tuple[RopeTable, ...]:
    """One table for each type of layer; scaling applies to the layers that see everything."""
    tables: tuple[RopeTable, ...] = ()
    nested = raw.section("rope_parameters")
    by_type = nested is not None and nested.has(_FULL, _SLIDING)
    if _FULL in types and by_type:
        tables += (RopeTable(dims.max_position_embeddings, full.rotary_dim),)
    elif _FULL in types:
        tables += (rope_table(raw, rotary_dim=full.rotary_dim, max_position_embeddings=dims.max_position_embeddings),)
    if _SLIDING in types:
        tables += (RopeTable(dims.max_position_embeddings, sliding.rotary_dim),)
    return tables


def _feed_forwards(raw: RawConfig) -> tuple[Mlp, Moe]:
    bias = raw.flag("mlp_bias", default=False)
    activation = raw.text("hidden_act", default="silu")
    experts, active = read_expert_counts(
        raw,
        ("moe_num_experts", "n_routed_experts", "num_experts"),
        ("moe_top_k", "num_experts_per_tok"),
        defaults=(288, 8),
    )
    raw.has("num_local_experts", "n_shared_experts")
    shared = read_width(raw, "share_expert_dims", "share_expert_dim", default=1280)
    moe = Moe(
        num_experts=experts,
        num_experts_per_tok=active,
        moe_intermediate_size=read_width(raw, "moe_intermediate_size", default=1280),
        activation=activation,
        router_dtype="float32",
        correction_bias=True,
        shared=shared_experts(1, shared, activation=activation, block="share_expert", bias=bias),
        names=MoeNames(block="moe", correction="router_bias"),
    )
    dense = Mlp(intermediate_size=read_width(raw, "intermediate_size", default=11264), activation=activation, bias=bias)
    return dense, moe


def _sparse_layers(raw: RawConfig, count: int) -> list[bool]:
    """Which layers have experts: `mlp_layer_types`, else `moe_layers_enum` ("3,4,5"), else all after the first three.

    Raises:
        ConfigError: fewer entries than layers, or something that is no layer number.
        UnsupportedArchitecture: a type that is not understood.
    """
    types = raw.texts("mlp_layer_types")
    if types is not None:
        check_layer_types(raw, "mlp_layer_types", types, ("dense", SPARSE))
        if len(types) < count:
            raise raw.error("mlp_layer_types", f"has {len(types)} entries; expected {count}")
        return [kind == SPARSE for kind in types[:count]]
    first = raw.integer("first_k_dense_replace", default=_DENSE_LAYERS)
    listed = raw.raw("moe_layers_enum")
    if listed is None:
        return [index >= first for index in range(count)]
    items = listed.split(",") if isinstance(listed, str) else listed
    chosen = set()
    for item in items if isinstance(items, list) else [None]:
        text = str(item).strip()
        if not text.isdecimal() or len(text) > 6:
            raise raw.error("moe_layers_enum", "holds something other than layer numbers")
        chosen.add(int(text))
    return [index in chosen for index in range(count)]
