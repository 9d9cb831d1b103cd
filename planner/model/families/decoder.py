"""What most decoder configs have in common, read once: sizes, dtype, embeddings, head, rotary table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from planner.errors import UnsupportedArchitecture
from planner.model.config import LARGEST_LAYER_COUNT, REQUIRED, RawConfig
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.rope import RopeTable, rope_parameters, rope_table
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Part, Role, Split, Tensor, vocabulary_matrix

Kind = TypeVar("Kind", bound=Hashable)

_DTYPES = {
    "bfloat16": "bfloat16",
    "torch.bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "torch.float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "float32": "float32",
    "torch.float32": "float32",
    "fp32": "float32",
    "float": "float32",
}
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_DEFAULT_NAMES = AttentionNames()
_NO_DEFAULTS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The sizes nearly every decoder config states."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    dtype: str | None
    tie_word_embeddings: bool


def read_dtype(raw: RawConfig) -> str | None:
    """The checkpoint's storage type (dtype, before transformers 5 torch_dtype), or None when not stated.

    Raises:
        UnsupportedArchitecture: a type that weights are not stored in.
    """
    declared = raw.optional_text("dtype", "torch_dtype")
    if declared is None or declared == "auto":
        return None
    if declared not in _DTYPES:
        known = "bfloat16, float16, float32"
        raise UnsupportedArchitecture(
            f"{raw.path}: dtype {declared[:40]!r} is not understood; expected one of {known}", field="dtype"
        )
    return _DTYPES[declared]


def read_layer_count(raw: RawConfig, *names: str) -> int:
    """The number of layers under any of these keys (default num_hidden_layers and its aliases)."""
    names = names or _LAYER_COUNTS
    return raw.integer(*names, minimum=1, maximum=LARGEST_LAYER_COUNT)


def read_dimensions(
    raw: RawConfig,
    *,
    tie_default: bool = False,
    head_dim_default: int | None = None,
    defaults: Mapping[str, int] = _NO_DEFAULTS,
) -> Dimensions:
    """Sizes of a decoder; an explicit head_dim wins over hidden_size / num_attention_heads.

    Args:
        tie_default: what the family's transformers config class assumes when the key is absent.
        head_dim_default: likewise for head_dim, for classes that fix one; None derives it.
        defaults: likewise for any other size, by its standard name. Sections saved inside another config
            (text_config) leave out what equals the class default, so their families need all of them.

    Raises:
        ConfigError: a size that is missing, out of range, or does not divide; names the field.
    """

    def size(*names: str, default: int | None = None, maximum: int) -> int:
        fallback = defaults.get(names[0], default)
        return raw.integer(*names, default=REQUIRED if fallback is None else fallback, minimum=1, maximum=maximum)

    hidden_size = size("hidden_size", "n_embd", "d_model", "n_embed", maximum=1 << 20)
    heads = size("num_attention_heads", "n_head", "n_heads", "num_heads", maximum=1 << 14)
    key_value_heads = size(
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", default=heads, maximum=1 << 14
    )
    head_dim = raw.optional_integer("head_dim", minimum=1, maximum=1 << 14) or head_dim_default
    if head_dim is None:
        if hidden_size % heads:
            raise raw.error(
                "num_attention_heads",
                f"is {heads}, which does not divide hidden_size {hidden_size}; state head_dim explicitly",
            )
        head_dim = hidden_size // heads
    if heads % key_value_heads:
        raise raw.error(
            "num_key_value_heads", f"is {key_value_heads}, which does not divide num_attention_heads {heads}"
        )
    return Dimensions(
        hidden_size=hidden_size,
        num_hidden_layers=size(*_LAYER_COUNTS, maximum=LARGEST_LAYER_COUNT),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        vocab_size=size("vocab_size", "padded_vocab_size", maximum=1 << 27),
        max_position_embeddings=size(
            "max_position_embeddings",
            "n_positions",
            "max_sequence_length",
            "max_seq_len",
            "seq_length",
            "n_ctx",
            default=2048,
            maximum=1 << 31,
        ),
        dtype=read_dtype(raw),
        tie_word_embeddings=raw.flag("tie_word_embeddings", "tie_embedding", default=tie_default),
    )


def as_multi_head(dims: Dimensions) -> Dimensions:
    """The same sizes with as many key as query heads, for families that know no other, whatever the config says."""
    return replace(dims, num_key_value_heads=dims.num_attention_heads)


def read_rotary_dim(raw: RawConfig, head_dim: int, *, fraction_default: float = 1.0) -> int:
    """Elements of each head that rotary embedding turns: head_dim x partial_rotary_factor.

    Raises:
        ConfigError: a factor outside [0, 1].
    """
    section = rope_parameters(raw)
    nested = section.raw("partial_rotary_factor") if section is not None else None
    fraction = raw.number("partial_rotary_factor", "rotary_pct", default=fraction_default)
    if isinstance(nested, int | float) and not raw.has("partial_rotary_factor", "rotary_pct"):
        fraction = float(nested)
    if not 0 <= fraction <= 1:
        raise raw.error("partial_rotary_factor", f"is {fraction}; expected 0 to 1")
    return int(head_dim * fraction)


def sliding_by_layer(raw: RawConfig, count: int) -> list[bool] | None:
    """Whether each layer is windowed, by the config's explicit `layer_types`; None when it states none.

    Raises:
        ConfigError: not one entry a layer.
        UnsupportedArchitecture: a type other than full_attention and sliding_attention.
    """
    types = raw.texts("layer_types", length=count)
    if types is None:
        return None
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            raise refuse(raw, "layer_types", f"holds {kind[:40]!r}; expected full_attention or sliding_attention")
    return [kind == "sliding_attention" for kind in types]


def attention_of(
    dims: Dimensions,
    *,
    rotary_dim: int = 0,
    sliding_window: int | None = None,
    bias: bool = False,
    output_bias: bool = False,
    fused: bool = False,
    query_norm: Norm | None = None,
    key_norm: Norm | None = None,
    input_first: bool = False,
    causal: bool = True,
    names: AttentionNames = _DEFAULT_NAMES,
) -> Attention:
    """Attention with the config's heads; `bias` is that of query, key and value."""
    return Attention(
        num_attention_heads=dims.num_attention_heads,
        num_key_value_heads=dims.num_key_value_heads,
        head_dim=dims.head_dim,
        rotary_dim=rotary_dim,
        sliding_window=sliding_window,
        query_bias=bias,
        key_bias=bias,
        value_bias=bias,
        output_bias=output_bias,
        fused=fused,
        query_norm=query_norm,
        key_norm=key_norm,
        input_first=input_first,
        causal=causal,
        names=names,
    )


def layers_of(kinds: Sequence[Kind], make: Callable[[Kind], Layer]) -> tuple[Layer, ...]:
    """One layer for each entry, made once for each distinct kind (a window, a layer type)."""
    made = {kind: make(kind) for kind in dict.fromkeys(kinds)}
    return tuple(made[kind] for kind in kinds)


def refuse(raw: RawConfig, field: str, why: str) -> UnsupportedArchitecture:
    """The complaint that a field selects something that is not understood, ready to raise."""
    return UnsupportedArchitecture(f"{raw.path}: {field} {why}", field=field)


def assemble(
    raw: RawConfig,
    dims: Dimensions,
    layers: tuple[Layer, ...],
    *,
    final_norm: Norm | None,
    rotary_dim: int = 0,
    embeddings: tuple[Tensor, ...] | None = None,
    head: tuple[Tensor, ...] | None = None,
    head_bias: bool = False,
    layer_prefix: str = "model.layers",
    embedding_name: str = "model.embed_tokens.weight",
    head_name: str = "lm_head",
    rope_tables: tuple[RopeTable, ...] | None = None,
    notes: tuple[str, ...] = (),
) -> ModelSpec:
    """A plain decoder: token embedding, layers, final norm, lm_head unless tied.

    An architecture named ...Model (an embedding model such as e5-mistral) has no lm_head.

    Args:
        final_norm: full name; None when the model has none.
        rotary_dim: width of the rotary table (0: none), unless `rope_tables` states them.
        embeddings, head: replace the token embedding, or final norm and lm_head, whole.
    """
    if embeddings is None:
        embeddings = (vocabulary_matrix(embedding_name, dims.vocab_size, dims.hidden_size, Role.EMBEDDING),)
    if head is None:
        head = final_norm.tensors() if final_norm is not None else ()
        if has_head(raw):
            if not dims.tie_word_embeddings:
                head += (vocabulary_matrix(f"{head_name}.weight", dims.vocab_size, dims.hidden_size, Role.LM_HEAD),)
            if head_bias:
                rows = Split(0, (Part(dims.vocab_size, dims.vocab_size),), vocabulary=True)
                head += (Tensor(f"{head_name}.bias", (dims.vocab_size,), Role.LM_HEAD, rows),)
    if rope_tables is None:
        rope_tables = ()
        if rotary_dim:
            rope_tables = (
                rope_table(raw, rotary_dim=rotary_dim, max_position_embeddings=dims.max_position_embeddings),
            )
    quantization = raw.section("quantization_config", "compression_config")
    ignored = raw.never_asked()
    if ignored:
        notes += (f"config keys that could change memory and were not used: {', '.join(ignored[:12])}",)
    return ModelSpec(
        model_type=raw.text("model_type", default="unknown"),
        architecture=read_architecture(raw),
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        max_position_embeddings=dims.max_position_embeddings,
        dtype=dims.dtype,
        tie_word_embeddings=dims.tie_word_embeddings,
        embeddings=embeddings,
        layers=layers,
        head=head,
        layer_prefix=layer_prefix,
        rope_tables=rope_tables,
        notes=notes,
        quantization_config=quantization.mapping() if quantization is not None else None,
    )


def has_head(raw: RawConfig) -> bool:
    """Whether the architecture ends in a vocabulary: all but the bare ...Model classes (GPT2LMHeadModel has one)."""
    name = read_architecture(raw)
    return name.endswith("LMHeadModel") or not name.endswith("Model")


def read_architecture(raw: RawConfig) -> str:
    """The first of the config's `architectures`, or "" when it lists none."""
    names = raw.texts("architectures")
    return names[0] if names else ""
