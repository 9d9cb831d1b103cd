"""DeepSeek-V4's pool: caches of different pages that share one block, by version.

The compressed vectors and the indexer's keys are one group; the windows, and what the compressors have not compressed
yet, are groups of bounded layers beside it. A block id belongs to one group at a time, and is as large as

    tuples    (0.20 to 0.23)  the longest group's layers, each with one page of every size of the first group
    buckets   (0.24 to 0.27)  for every page size, the longest run of such pages in any group
    dense     (0.28 and 0.29) the largest group's pages together
    patterns  (0.30 on)       the same; groups are split by the buckets that have as many layers of each page size

Sources: vLLM 0.20.0, 0.22.1, 0.24.0, 0.28.0 `v1/core/kv_cache_utils.py` (_get_kv_cache_groups_uniform_groups,
_get_kv_cache_config_deepseek_v4, _get_kv_cache_config_packed, get_max_concurrency_for_kv_cache_config), 0.33.0
`v1/core/kv_cache_planning.py` (_get_packed_kv_cache_groups); block sizes: `models/deepseek_v4/compressor.py`,
`v1/attention/backends/mla/sparse_swa.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.engines.vllm.pool.pool import Group, Pool, PoolLayer, PoolOptions, ceil_div
from planner.engines.vllm.tables.profile import EngineProfile
from planner.errors import UsageError
from planner.memory.cache.kv_cache import LayerCache
from planner.model.caches import CompressedCache, IndexerCache

# Tokens of a block: windows 64; what a compressor holds by its window, 8 (ratio 4) or 128 tokens.
_WINDOW_BLOCK: Final = 64
_HELD_BLOCKS: Final = {8: 4, 128: 8}
# Pages are padded for the kernels: to 576 B with the 584-byte entries, else (0.28 on) to 512 B.
_PACKED_ENTRY_BYTES: Final = 584
_PACKED_ALIGNMENT: Final = 576
_PLAIN_ALIGNMENT: Final = 512


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers of one block size and window, before they are split into groups."""

    layers: tuple[PoolLayer, ...]

    @property
    def longest(self) -> int:
        """Layers of the most frequent page size."""
        return max(layer.count for layer in self.layers)

    @property
    def balanced(self) -> bool:
        """As many layers of every page size."""
        return len({layer.count for layer in self.layers}) == 1


def packed_pool(caches: Sequence[LayerCache], profile: EngineProfile, options: PoolOptions) -> Pool:
    """The pool of a model with compressed caches.

    Raises:
        UsageError: a version without this model, or without compressed layers beside the windows.
    """
    if profile.packed_layout == "none":
        raise UsageError(f"vLLM {profile.version} has no DeepSeek-V4; use 0.20 or newer", field="engine_version")
    full, bounded = _buckets(caches, profile, options)
    if not full.layers:
        raise UsageError("a stage without compressed layers has no packed KV layout", field="pipeline_parallel_size")
    sizes = [layer.page_bytes for layer in full.layers]
    if profile.packed_layout in ("tuples", "buckets"):
        bounded = [_Bucket(tuple(_padded(layer, sizes) for layer in bucket.layers)) for bucket in bounded]
    tuples = _common_length(full, bounded, profile)
    groups = [_group(full.layers)]
    members: list[tuple[PoolLayer, ...]] = [full.layers]
    for bucket in bounded:
        parts = ceil_div(bucket.longest, tuples) if bucket.balanced else 1
        for index in range(parts):
            part = tuple(
                replace(layer, count=layer.count // parts + (index < layer.count % parts)) for layer in bucket.layers
            )
            members.append(part)
            groups.append(_group(part))
    longest = max(layer.count for part in members for layer in part)
    by_tuples = longest * sum(set(sizes))
    return Pool(
        groups=tuple(groups),
        bytes_per_block=_block_bytes(members, by_tuples, profile.packed_layout),
        padding_layers=0,
        block_size=min(group.layer.block_size for group in groups),
        options=options,
        tokens_line=profile.tokens_line,
        reserves_null_block=profile.reserves_null_block,
        needed_block_bytes=None if profile.packed_layout == "patterns" else by_tuples,
        weighted=profile.packed_layout in ("tuples", "buckets"),
    )


def _block_bytes(members: Sequence[tuple[PoolLayer, ...]], by_tuples: int, rule: str) -> int:
    if rule == "tuples":
        return by_tuples
    if rule in ("dense", "patterns"):
        return max(sum(layer.page_bytes * layer.count for layer in part) for part in members)
    runs: dict[int, int] = defaultdict(int)
    for part in members:
        for size, count in _by_size(part).items():
            runs[size] = max(runs[size], count)
    return sum(size * count for size, count in runs.items())


def _by_size(part: Sequence[PoolLayer]) -> Mapping[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for layer in part:
        counts[layer.page_bytes] += layer.count
    return counts


def _group(part: Sequence[PoolLayer]) -> Group:
    pages = sum(layer.page_bytes * layer.count for layer in part)
    return Group(part[0], sum(layer.count for layer in part), pages)


def _padded(layer: PoolLayer, sizes: Sequence[int]) -> PoolLayer:
    """The next larger page of the first group, so that both can lie in the same place."""
    return replace(layer, page_bytes=min((size for size in sizes if size >= layer.page_bytes), default=max(sizes)))


def _common_length(full: _Bucket, bounded: Sequence[_Bucket], profile: EngineProfile) -> int:
    """Layers of a group, chosen so that rounding every bucket up to whole groups adds fewest layers."""
    if profile.packed_layout == "patterns":
        lengths = [bucket.longest for bucket in (full, *bounded) if bucket.balanced]
        least = max(
            (bucket.longest for bucket in (full, *bounded) if bucket.balanced and len(bucket.layers) > 1), default=0
        )
        if not least:
            return max(bucket.longest for bucket in (full, *bounded))
    else:
        lengths = [bucket.longest for bucket in (full, *bounded)]
        least = full.longest
    return min(
        range(least, max(least, *lengths) + 1),
        key=lambda size: (sum(-length % size for length in lengths), -size),
    )


def _buckets(
    caches: Sequence[LayerCache], profile: EngineProfile, options: PoolOptions
) -> tuple[_Bucket, list[_Bucket]]:
    entry_bytes = max((c.slot_bytes for c in caches if _plain_vector(c)), default=_PACKED_ENTRY_BYTES)
    packed = entry_bytes == _PACKED_ENTRY_BYTES
    alignment = (
        _PACKED_ALIGNMENT if packed else _PLAIN_ALIGNMENT if profile.packed_layout in ("dense", "patterns") else 1
    )
    full: dict[int, PoolLayer] = {}
    bounded: dict[tuple[int, int], list[PoolLayer]] = {}
    for entry in caches:
        cache = entry.cache
        assert isinstance(cache, CompressedCache | IndexerCache)
        window = cache.sliding_window if isinstance(cache, CompressedCache) else None
        if window is None:
            if options.block_size % cache.compress_ratio:
                raise UsageError(
                    f"--block-size {options.block_size} is no multiple of a vector's {cache.compress_ratio} tokens",
                    field="block_size",
                )
            rows, block = options.block_size // cache.compress_ratio, options.block_size
        else:
            held = isinstance(cache, CompressedCache) and cache.dtype is not None
            rows = block = _HELD_BLOCKS[window] if held else _WINDOW_BLOCK
        # indexer keys keep the 576 B of the packed entries whatever lies beside them before 0.28
        unit = _PACKED_ALIGNMENT if isinstance(cache, IndexerCache) and alignment == 1 else alignment
        page = ceil_div(rows * entry.slot_bytes, unit) * unit
        layer = PoolLayer("sliding" if window else "latent", entry.count, page, block, window or 0)
        if window is None:
            known = full.get(page)
            full[page] = layer if known is None else replace(known, count=known.count + layer.count)
        else:
            bounded.setdefault((block, window), []).append(layer)
    return _Bucket(tuple(full.values())), [_Bucket(tuple(layers)) for layers in bounded.values()]


def _plain_vector(entry: LayerCache) -> bool:
    return isinstance(entry.cache, CompressedCache) and entry.cache.dtype is None
