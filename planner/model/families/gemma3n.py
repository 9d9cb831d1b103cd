"""Gemma 3n: parallel streams (AltUp), low-rank residuals (Laurel), per-layer embeddings, shared caches; sees and hears.

Sources: transformers 5.24 gemma3n (configuration_, modeling_, processing_); vLLM 0.19 models/gemma3n.py,
gemma3n_mm.py: key and value projections are allocated in the layers that share a cache too; Laurel is cut, AltUp
is whole, the towers are transformers' own and whole on every GPU.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.conformer import gemma3n_audio
from planner.model.families.decoder import Dimensions, assemble, attention_of, layers_of, read_dimensions
from planner.model.families.gemma_layers import (
    FULL,
    first_shared_layer,
    layer_embeddings,
    layer_inputs,
    layer_types,
    read_window,
)
from planner.model.families.mobilenet import mobilenet_v5
from planner.model.families.nested import multimodal, text_spec
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.kinds.tower import parameter
from planner.model.rope import rope_tables_by_type
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Norm, Role, Tensor, linear, vocabulary_matrix, whole

_DEFAULTS = {
    "vocab_size": 262_400,
    "hidden_size": 2048,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gemma3n or gemma3n_text config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    if raw.text("model_type", default="gemma3n_text") == "gemma3n_text":
        return _text(raw)
    text = text_spec(raw, text_type="gemma3n_text", tie_default=True)
    vision, audio = raw.section("vision_config"), raw.section("audio_config")
    stacks: list[Stack] = []
    if vision is not None:
        tokens = raw.integer("vision_soft_tokens_per_image", default=256, minimum=1, maximum=1 << 16)
        stacks.append(mobilenet_v5(vision, text.hidden_size, tokens))
    if audio is not None:
        tokens = raw.integer("audio_soft_tokens_per_image", default=188, minimum=1, maximum=1 << 16)
        stacks.append(gemma3n_audio(audio, text.hidden_size, tokens))
    return multimodal(raw, text, tuple(stacks), vision, audio)


def _text(raw: RawConfig) -> ModelSpec:
    prefix = "model"
    dims = read_dimensions(raw, tie_default=True, head_dim_default=256, defaults=_DEFAULTS)
    count, hidden = dims.num_hidden_layers, dims.hidden_size
    types = layer_types(raw, count, pattern=5)
    shared_from = first_shared_layer(raw, types, default=15)
    window = read_window(raw, default=512)
    widths = _intermediate_sizes(raw, count)
    ple_width = raw.integer("hidden_size_per_layer_input", default=256, minimum=1, maximum=1 << 14)
    streams = raw.integer("altup_num_inputs", default=4, minimum=1, maximum=64)
    extra = _altup(streams, hidden) + _laurel(raw, hidden) + layer_inputs(ple_width, hidden)
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    norms = tuple(Norm(name, hidden) for name in names)
    activation = raw.text("hidden_activation", default="gelu_pytorch_tanh")

    def layer(key: tuple[str, bool, int]) -> Layer:
        kind, shared, width = key
        return Layer(
            mixers=(_attention(raw, dims, None if kind == FULL else window, shared=shared),),
            feed_forward=Mlp(intermediate_size=width, activation=activation),
            norms=norms,
            extra=extra,
        )

    embeddings: list[Tensor] = [
        vocabulary_matrix(f"{prefix}.embed_tokens.weight", dims.vocab_size, hidden, Role.EMBEDDING),
        *layer_embeddings(
            prefix,
            vocab_size=raw.integer("vocab_size_per_layer_input", default=262_144, minimum=1, maximum=1 << 27),
            layers=count,
            width=ple_width,
            hidden_size=hidden,
        ),
    ]
    for module in ("altup_projections", "altup_unembed_projections"):
        for index in range(streams - 1):
            embeddings += linear(f"{prefix}.{module}.{index}", hidden, hidden, Role.OTHER, column=whole(hidden))
    return assemble(
        raw,
        dims,
        layers_of([(kind, i >= shared_from, widths[i]) for i, kind in enumerate(types)], layer),
        final_norm=Norm(f"{prefix}.norm", hidden),
        embeddings=tuple(embeddings),
        layer_prefix=f"{prefix}.layers",
        rope_tables=rope_tables_by_type(
            raw, rotary_dim=dims.head_dim, max_position_embeddings=dims.max_position_embeddings, same_base=False
        ),
    )


def _attention(raw: RawConfig, dims: Dimensions, window: int | None, *, shared: bool) -> Attention:
    bias = raw.flag("attention_bias", default=False)
    return replace(
        attention_of(
            dims,
            rotary_dim=dims.head_dim,
            sliding_window=window,
            bias=bias,
            output_bias=bias,
            query_norm=Norm("q_norm", dims.head_dim),
            key_norm=None if shared else Norm("k_norm", dims.head_dim),
        ),
        owns_key_value=not shared,
        keeps_cache=not shared,
    )


def _intermediate_sizes(raw: RawConfig, count: int) -> list[int]:
    """intermediate_size: one number, or one a layer."""
    if isinstance(raw.raw("intermediate_size"), list):
        sizes = raw.integers("intermediate_size", length=count, minimum=1) or []
        if max(sizes) > 1 << 24:
            raise raw.error("intermediate_size", f"holds {max(sizes)}; expected at most {1 << 24:,}")
        return sizes
    return [raw.integer("intermediate_size", default=16_384, minimum=1, maximum=1 << 24)] * count


def _altup(streams: int, hidden: int) -> tuple[Tensor, ...]:
    """Alternating updates: each layer computes one stream and predicts the others (arXiv 2301.13310)."""
    return (
        parameter("altup.correct_output_scale", hidden, role=Role.OTHER),
        *linear("altup.correction_coefs", streams, streams, Role.OTHER),
        *linear("altup.prediction_coefs", streams**2, streams, Role.OTHER),
        *linear("altup.modality_router", streams, hidden, Role.ROUTER),
        *Norm("altup.router_norm", hidden).tensors(),
    )


def _laurel(raw: RawConfig, hidden: int) -> tuple[Tensor, ...]:
    """A learned low-rank residual (arXiv 2411.07501)."""
    rank = raw.integer("laurel_rank", default=64, minimum=1, maximum=1 << 14)
    return (
        *linear("laurel.linear_left", rank, hidden, Role.OTHER, column=whole(rank)),
        *linear("laurel.linear_right", hidden, rank, Role.OTHER, row=whole(rank)),
        *Norm("laurel.post_laurel_norm", hidden).tensors(),
    )
