"""Ollama's own estimate until 2025-08, which decided how many layers went to a card and what `ollama ps` said.

    cache        num_ctx * slots * (K + V) * bytes, with q8_0 as 1 byte and q4_0 as a half
    graph        max(4*b*(1 + 4E + ctx*(1 + H)), 4*b*(E + V)) for the llama family

A card is used if more is free than 457 MiB, the overhead, the graph and two layers.

Source: ollama v0.9.6 `llm/memory.go`, `fs/ggml/ggml.go` (GraphSize).
"""

from __future__ import annotations

from typing import Final

from planner.model.caches import KeyValueCache
from planner.model.kinds.attention import Attention
from planner.model.spec import ModelSpec
from planner.units import MIB

MINIMUM_BYTES: Final = 457 * MIB
METAL_MINIMUM_BYTES: Final = 512 * MIB
_ELEMENT: Final = {"f16": 2.0, "q8_0": 1.0, "q4_0": 0.5}


def cache_bytes(spec: ModelSpec, tokens: int, cache_type: str) -> int:
    """The cache of all layers for `tokens` of all slots together."""
    elements = sum(
        cache.num_key_value_heads * (cache.key_head_dim + cache.value_head_dim)
        for layer in spec.layers
        for cache in layer.caches()
        if isinstance(cache, KeyValueCache)
    )
    return int(tokens * elements * _ELEMENT.get(cache_type, 2.0))


def graph_bytes(spec: ModelSpec, tokens: int, batch: int) -> int:
    """The compute graph with every layer on the card, for the llama family."""
    heads = max(
        (mixer.num_attention_heads for layer in spec.layers for mixer in layer.mixers if isinstance(mixer, Attention)),
        default=0,
    )
    width, vocabulary = spec.hidden_size, spec.vocab_size
    return max(4 * batch * (1 + 4 * width + tokens * (1 + heads)), 4 * batch * (width + vocabulary))
