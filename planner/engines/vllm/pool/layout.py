"""What vLLM reserves for the cache: pages, groups, padding, blocks, and the two numbers it prints.

    page          bytes of one block of one layer
    group         layers that share block ids; every group has the same number of tensors
    num_blocks    available // page // tensors

Sources: vLLM `v1/kv_cache_interface.py`, `v1/core/kv_cache_utils.py` (0.9 to 0.30), `kv_cache_planning.py`
(0.33), `models/config.py` and `platforms/interface.py` for hybrid alignment; versions in each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm

from planner.engines.vllm.pool.packed import packed_pool
from planner.engines.vllm.pool.pool import Group, Pool, PoolLayer, PoolOptions, ceil_div
from planner.engines.vllm.tables.profile import EngineProfile
from planner.errors import UsageError
from planner.memory.cache.kv_cache import LayerCache
from planner.model.caches import CompressedCache, CrossCache, IndexerCache, KeyValueCache, LatentCache, StateCache

__all__ = ["Group", "Pool", "PoolLayer", "PoolOptions", "build_pool"]


def build_pool(caches: Sequence[LayerCache], profile: EngineProfile, options: PoolOptions) -> Pool:
    """The pool vLLM lays out for these caches.

    Raises:
        UsageError: page sizes that the version cannot reconcile.
    """
    if any(isinstance(entry.cache, CompressedCache) for entry in caches):
        return packed_pool(caches, profile, options)
    if profile.runner == "v0":
        # recurrent states lie outside the pool: made whole in the profile run (models/mamba_cache.py 0.8.5)
        caches = [entry for entry in caches if not isinstance(entry.cache, StateCache)]
    layers, block_size = _pool_layers(caches, profile, options)
    if not layers:
        return _pool((), 1, 0, block_size, profile, options)
    if not (options.hybrid_manager and profile.hybrid_manager):
        layers = _without_windows(layers)
    layers = _merged(layers)
    if profile.runner == "v0" and len(layers) > 1:
        return _one_table(layers, block_size, profile, options)
    if len(layers) == 1:
        only = layers[0]
        return _pool((Group(only, only.count),), only.page_bytes * only.count, 0, block_size, profile, options)
    if len({(layer.kind in ("latent", "indexer", "full"), layer.block_size) for layer in layers}) == 1 and all(
        layer.kind in ("latent", "indexer", "full") for layer in layers
    ):
        return _uniform(layers, block_size, profile, options)
    return _grouped(_unified(layers, profile), block_size, profile, options)


def _pool(
    groups: tuple[Group, ...],
    bytes_per_block: int,
    padding: int,
    block_size: int,
    profile: EngineProfile,
    options: PoolOptions,
) -> Pool:
    sizes = [group.layer.block_size for group in groups]
    return Pool(
        groups=groups,
        bytes_per_block=bytes_per_block,
        padding_layers=padding,
        block_size=min(sizes, default=block_size),
        options=options,
        tokens_line=profile.tokens_line,
        reserves_null_block=profile.reserves_null_block,
        per_layer_check=profile.capacity_check == "layers" and len(groups) > 1,
    )


_KINDS: dict[type, Callable[[LayerCache], tuple[str, int]]] = {
    KeyValueCache: lambda entry: _key_value_kind(entry),
    LatentCache: lambda entry: ("latent", 0),
    IndexerCache: lambda entry: ("indexer", 0),
    CrossCache: lambda entry: ("cross", entry.cache.slots(0) if isinstance(entry.cache, CrossCache) else 0),
}


def _key_value_kind(entry: LayerCache) -> tuple[str, int]:
    cache = entry.cache
    assert isinstance(cache, KeyValueCache)
    if cache.sliding_window is not None:
        return "sliding", cache.sliding_window
    if cache.attention_chunk_size is not None:
        return "chunked", cache.attention_chunk_size
    return "full", 0


def _pool_layers(
    caches: Sequence[LayerCache], profile: EngineProfile, options: PoolOptions
) -> tuple[list[PoolLayer], int]:
    """Page sizes, with the block of a hybrid model raised until an attention page covers a state (0.10+)."""
    states = [entry for entry in caches if isinstance(entry.cache, StateCache)]
    others = [entry for entry in caches if not isinstance(entry.cache, StateCache)]
    block_size = options.block_size
    state_page = max((entry.state_bytes for entry in states), default=0)
    if states and others:
        token_bytes = max(entry.slot_bytes for entry in others if not isinstance(entry.cache, CrossCache))
        alignment = options.attention_alignment
        if options.state_mode == "all":
            chunk = lcm(
                max(entry.cache.chunk_size for entry in states if isinstance(entry.cache, StateCache)) or 1, alignment
            )
            needed = chunk * ceil_div(ceil_div(state_page, token_bytes), chunk)
        else:
            needed = alignment * ceil_div(state_page, alignment * token_bytes)
        block_size = max(block_size, needed)
        state_page = max(state_page, block_size * token_bytes)
    layers = []
    for entry in others:
        kind, window = _KINDS[type(entry.cache)](entry)
        layers.append(PoolLayer(kind, entry.count, block_size * entry.slot_bytes, block_size, window))
    for entry in states:
        page = state_page if others else entry.state_bytes
        # a state's block: everything without prefix caching, else that of the attention beside it
        layers.append(
            PoolLayer("state", entry.count, page, options.max_model_len if options.state_mode == "none" else block_size)
        )
    return layers, block_size


def _without_windows(layers: list[PoolLayer]) -> list[PoolLayer]:
    """Without the hybrid manager, bounded layers are charged in full beside full ones."""
    if not any(layer.kind in ("full", "latent") for layer in layers):
        return layers
    return [
        replace(layer, kind="full", window=0) if layer.kind in ("sliding", "chunked") else layer for layer in layers
    ]


def _merged(layers: Sequence[PoolLayer]) -> list[PoolLayer]:
    counts: dict[PoolLayer, int] = {}
    for layer in layers:
        key = replace(layer, count=0)
        counts[key] = counts.get(key, 0) + layer.count
    return [replace(key, count=count) for key, count in counts.items()]


def _one_table(layers: list[PoolLayer], block_size: int, profile: EngineProfile, options: PoolOptions) -> Pool:
    """V0 gives a block room in every layer, of cross attention too, whose source tokens have a table of their own.

    Source: vLLM 0.7.3 `worker/cache_engine.py` get_cache_block_size, `core/block_manager.py` (cross_block_tables).
    """
    total = sum(layer.page_bytes * layer.count for layer in layers)
    count = sum(layer.count for layer in layers)
    text = max((layer for layer in layers if layer.kind != "cross"), key=lambda layer: layer.count, default=layers[0])
    tables = [text, *(layer for layer in layers if layer.kind == "cross" and layer is not text)]
    pool = _pool(tuple(Group(layer, count) for layer in tables), total, 0, block_size, profile, options)
    return replace(pool, whole_blocks=True, per_layer_check=False)


def _uniform(layers: list[PoolLayer], block_size: int, profile: EngineProfile, options: PoolOptions) -> Pool:
    """One group of full-attention layers whose pages differ: num_blocks = available // sum of pages (0.11+)."""
    total = sum(layer.page_bytes * layer.count for layer in layers)
    count = sum(layer.count for layer in layers)
    largest = max(layers, key=lambda layer: layer.page_bytes)
    return _pool((Group(largest, count),), total, 0, block_size, profile, options)


def _unified(layers: list[PoolLayer], profile: EngineProfile) -> list[PoolLayer]:
    """Smaller pages get proportionally larger blocks until all pages are equal (0.12+), or are padded (0.24+)."""
    largest = max(layer.page_bytes for layer in layers)
    if all(layer.page_bytes == largest for layer in layers):
        return layers
    if not profile.unifies_pages:
        raise UsageError(
            f"vLLM {profile.version} cannot hold layers whose pages differ"
            f" ({', '.join(str(layer.page_bytes) for layer in layers)} B); use 0.12 or newer",
            field="engine_version",
        )
    unified = []
    for layer in layers:
        if layer.kind == "state":
            unified.append(replace(layer, page_bytes=largest))
            continue
        if largest % layer.page_bytes and profile.pads_pages and layer.kind != "latent":
            unified.append(replace(layer, page_bytes=largest))
            continue
        if largest % layer.page_bytes:
            raise UsageError(
                "the page size of the layer is not divisible by the maximum page size"
                f" ({layer.page_bytes} B and {largest} B): this engine cannot unify them",
                field="kv_cache_dtype",
            )
        factor = largest // layer.page_bytes
        unified.append(replace(layer, page_bytes=largest, block_size=layer.block_size * factor))
    return unified


def _grouped(layers: list[PoolLayer], block_size: int, profile: EngineProfile, options: PoolOptions) -> Pool:
    """Groups of equal size; a spec's incomplete group is filled with padding layers."""
    smallest = min(layer.count for layer in layers)
    largest = max(layer.count for layer in layers)
    size = smallest
    # Almost equal counts are padded to the larger rather than split (0.12: below 1.25 times, 0.18: below 1.5).
    numerator, denominator = profile.group_tolerance
    if numerator and largest * denominator < numerator * smallest:
        size = largest
    groups: list[Group] = []
    for layer in layers:
        needed = ceil_div(layer.count, size)
        whole, extra = divmod(layer.count, needed)
        groups += [Group(layer, whole + (1 if index < extra else 0)) for index in range(needed)]
    tensors = max(group.layers for group in groups)
    padding = sum(tensors - group.layers for group in groups)
    page = max(layer.page_bytes for layer in layers)
    return _pool(tuple(groups), page * tensors, padding, block_size, profile, options)
