"""Pools of models with windowed layers: one for the layers that see everything, one for the windows.

    full = rest / (F x full layers + r x S x windowed layers), windows = r x full, both in whole pages

F and S are bytes of a token in one layer of either kind, r is --swa-full-tokens-ratio. Up to 0.5.8 the budget counts
every layer in full and spreads the tokens afterwards; from 0.5.22 the windows are sized by the requests where the radix
cache is off, --max-running-requests is given and prefill is chunked.

Only listed architectures are split (`tables/architectures.csv`); the windows of all others are kept at full length.

Source: SGLang 0.5.8, 0.5.9 model_runner_kv_cache_mixin.py set_num_tokens_hybrid_swa; 0.5.23 pool_configurator.py
HybridSWAPoolConfigurator, SWARequestCapPoolConfigurator, compute_swa_request_cap.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.memory.cache.formats import CacheFormat
from planner.memory.cache.kv_cache import local_key_value_heads
from planner.model.caches import KeyValueCache
from planner.model.spec import Layer

EVICTION_INTERVAL = 128  # environ.py SGLANG_SWA_EVICTION_INTERVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedCell:
    """Bytes of a token by kind of layer, on one GPU.

    Args:
        full_layers, windowed_layers: how many of each kind.
        full_bytes, windowed_bytes: a token in one layer of that kind.
        window: tokens that a windowed layer looks back.
    """

    full_layers: int
    windowed_layers: int
    full_bytes: int
    windowed_bytes: int
    window: int

    def bytes(self, full_tokens: int, windowed_tokens: int) -> int:
        """What both pools take."""
        return (
            full_tokens * self.full_bytes * self.full_layers
            + windowed_tokens * self.windowed_bytes * self.windowed_layers
        )


def windowed_cell(layers: tuple[Layer, ...], form: CacheFormat, attention_parallel_size: int) -> WindowedCell | None:
    """The cells of a model with windows (or chunks); None where no layer is bounded.

    Raises:
        UsageError: heads that the GPUs cannot share.
    """
    full: list[KeyValueCache] = []
    bounded: list[KeyValueCache] = []
    for layer in layers:
        for cache in layer.caches():
            if isinstance(cache, KeyValueCache):
                (bounded if cache.bounded else full).append(cache)
    if not bounded:
        return None

    def size(cache: KeyValueCache) -> int:
        heads = local_key_value_heads(cache, attention_parallel_size)
        return heads * (form.key.bytes(cache.key_head_dim) + form.value.bytes(cache.value_head_dim))

    return WindowedCell(
        full_layers=len(full),
        windowed_layers=len(bounded),
        full_bytes=size(full[0]) if full else 0,
        windowed_bytes=size(bounded[0]),
        window=bounded[0].sliding_window or bounded[0].attention_chunk_size or 0,
    )


def split_by_ratio(
    rest_bytes: int, cell: WindowedCell, *, ratio: float, page_size: int, counts_tokens: bool
) -> tuple[int, int]:
    """(tokens of the full pool, tokens of the windows).

    Args:
        counts_tokens: the budget is first turned into tokens of all layers (up to 0.5.8).
    """
    if not cell.full_layers:
        tokens = rest_bytes // (cell.windowed_bytes * cell.windowed_layers)
        return 0, tokens // page_size * page_size
    if counts_tokens:
        layers = cell.full_layers + cell.windowed_layers
        whole = rest_bytes // (cell.full_bytes * layers)
        full = int(whole * layers / (cell.full_layers + ratio * cell.windowed_layers))
    else:
        each = cell.full_bytes * cell.full_layers + ratio * cell.windowed_bytes * cell.windowed_layers
        full = int(rest_bytes / each)
    full = full // page_size * page_size
    return full, int(full * ratio) // page_size * page_size


def request_cap(
    *, window: int, page_size: int, requests: int, chunked_prefill_size: int, overlap: bool, draft_tokens: int = 0
) -> int:
    """Tokens that the windows of so many running requests need at worst, in whole pages."""
    trailing = window + EVICTION_INTERVAL * max(1, draft_tokens) + page_size
    per_request = trailing + (page_size if not draft_tokens else 2 * max(draft_tokens, page_size))
    chunks = 2 if overlap else 1
    cap = per_request * max(1, requests) + chunks * chunked_prefill_size + page_size
    return -(-cap // page_size) * page_size


def split_by_requests(rest_bytes: int, cell: WindowedCell, windowed_tokens: int, *, page_size: int) -> int:
    """Tokens of the full pool when the windows have this many."""
    left = rest_bytes - windowed_tokens * cell.windowed_bytes * cell.windowed_layers
    return max(0, left // (cell.full_bytes * cell.full_layers)) // page_size * page_size
