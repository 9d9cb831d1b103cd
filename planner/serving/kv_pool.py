"""What vLLM reserves for the cache: pages, groups, padding, blocks, and the two numbers it prints.

    page          bytes of one block of one layer
    group         layers that share block ids; every group has the same number of tensors
    num_blocks    available // page // tensors

Sources: vLLM `v1/kv_cache_interface.py`, `v1/core/kv_cache_utils.py` (0.9 to 0.30), `kv_cache_planning.py`
(0.33), `models/config.py` and `platforms/interface.py` for hybrid alignment; versions in each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import lcm

from planner.errors import UsageError
from planner.memory.kv_cache import LayerCache
from planner.model.caches import CompressedCache, CrossCache, IndexerCache, KeyValueCache, LatentCache, StateCache
from planner.serving.engines.profile import EngineProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The inputs that shape the pool, after defaults.

    Args:
        block_size: tokens of a block.
        max_model_len: longest admitted request, in tokens.
        tokens_in_flight: new tokens that may be scheduled at once; windows keep that many more.
        hybrid_manager: windowed and recurrent layers get groups of their own.
        state_mode: "none", "align" or "all": how prefix caching keeps recurrent states.
        speculative_tokens: proposed tokens, which lengthen recurrent states.
        context_parallel_size: GPUs that share each sequence's cache by position (decode context parallel).
        attention_alignment: smallest unit of tokens that the attention kernel accepts in a hybrid model.
    """

    block_size: int
    max_model_len: int
    tokens_in_flight: int
    hybrid_manager: bool = True
    state_mode: str = "none"
    speculative_tokens: int = 0
    context_parallel_size: int = 1
    attention_alignment: int = 16


@dataclass(frozen=True, slots=True)
class PoolLayer:
    """`count` layers of one cache spec, as the engine sees it.

    Args:
        kind: "full", "sliding", "chunked", "latent", "indexer", "compressed", "state" or "cross".
        page_bytes: bytes of one block of one layer.
        block_size: tokens of that block (0 for states).
        window: tokens of the window or chunk, or the source tokens of cross attention.
    """

    kind: str
    count: int
    page_bytes: int
    block_size: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share block ids."""

    layer: PoolLayer
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The layout of the KV pool, before its size is known.

    Args:
        groups: what each block id can belong to.
        bytes_per_block: bytes that one block id takes over all tensors.
        padding_layers: layers that exist only to fill a group.
        block_size: tokens of the smallest block that holds tokens.
        tokens_line: rule of the printed token count.
        reserves_null_block: the capacity check leaves one block out.
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    padding_layers: int
    block_size: int
    options: PoolOptions
    tokens_line: str
    reserves_null_block: bool = False

    def blocks_for(self, length: int) -> int:
        """Block ids that one request of `length` tokens takes, over all groups."""
        return sum(_blocks_needed(group.layer, length, self.options) for group in self.groups)

    def num_blocks(self, available_bytes: int) -> int:
        """Blocks that fit in this many bytes."""
        if not self.groups:
            return 1
        return max(available_bytes, 0) // self.bytes_per_block

    def needed_bytes(self, length: int) -> int:
        """Bytes one request of `length` tokens reserves."""
        return self.blocks_for(length) * self.bytes_per_block

    def max_concurrency(self, num_blocks: int, length: int | None = None) -> float:
        """Requests of `length` tokens (default max_model_len) that the pool holds, as the engine prints it."""
        needed = self.blocks_for(length or self.options.max_model_len)
        return num_blocks / needed if needed else 0.0

    def tokens(self, num_blocks: int) -> int:
        """The printed "GPU KV cache size", by the rule of this version."""
        if not self.groups:
            return 0
        if self.tokens_line == "concurrency":
            return int(self.max_concurrency(num_blocks) * self.options.max_model_len)
        return num_blocks // len(self.groups) * self.block_size * self.options.context_parallel_size

    def longest_length(self, available_bytes: int, *, requests: int = 1, ceiling: int = 1 << 24) -> int:
        """The longest request of which `requests` fit in this many bytes; 0 if none does."""
        blocks = self.num_blocks(available_bytes)
        low, high = 0, ceiling
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_for(middle) * requests <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def build_pool(caches: Sequence[LayerCache], profile: EngineProfile, options: PoolOptions) -> Pool:
    """The pool vLLM lays out for these caches.

    Raises:
        UsageError: page sizes that the version cannot reconcile.
    """
    layers, block_size = _pool_layers(caches, profile, options)
    if not layers:
        return _pool((), 1, 0, block_size, profile, options)
    if not (options.hybrid_manager and profile.hybrid_manager):
        layers = _without_windows(layers)
    layers = _merged(layers)
    if len(layers) == 1:
        only = layers[0]
        return _pool((Group(only, only.count),), only.page_bytes * only.count, 0, block_size, profile, options)
    if len({(layer.kind in ("latent", "indexer", "full"), layer.block_size) for layer in layers}) == 1 and all(
        layer.kind in ("latent", "indexer", "full") for layer in layers
    ):
        return _uniform(layers, block_size, profile, options)
    if any(layer.kind == "compressed" for layer in layers):
        return _packed(layers, block_size, profile, options)
    return _grouped(_unified(layers, profile), block_size, profile, options)


def _pool(
    groups: tuple[Group, ...],
    bytes_per_block: int,
    padding: int,
    block_size: int,
    profile: EngineProfile,
    options: PoolOptions,
) -> Pool:
    sizes = [group.layer.block_size for group in groups if group.layer.kind != "state"]
    return Pool(
        groups=groups,
        bytes_per_block=bytes_per_block,
        padding_layers=padding,
        block_size=min(sizes, default=block_size),
        options=options,
        tokens_line=profile.tokens_line,
        reserves_null_block=profile.reserves_null_block,
    )


_KINDS: dict[type, Callable[[LayerCache], tuple[str, int]]] = {
    KeyValueCache: lambda entry: _key_value_kind(entry),
    LatentCache: lambda entry: ("latent", 0),
    IndexerCache: lambda entry: ("indexer", 0),
    CompressedCache: lambda entry: ("compressed", 0),
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
    # what DeepSeek-V4's compressors keep in fp32 lies in pages of the caches beside it (0.24+ compressor.py)
    others = [
        entry
        for entry in caches
        if not isinstance(entry.cache, StateCache)
        and not (isinstance(entry.cache, CompressedCache) and entry.cache.dtype is not None)
    ]
    block_size = options.block_size
    state_page = max((entry.state_bytes for entry in states), default=0)
    if states and others:
        token_bytes = max(entry.slot_bytes for entry in others if not isinstance(entry.cache, CrossCache))
        alignment = options.attention_alignment
        if options.state_mode == "all" or (options.state_mode == "align" and profile.align_to_chunk):
            chunk = lcm(
                max(entry.cache.chunk_size for entry in states if isinstance(entry.cache, StateCache)) or 1, alignment
            )
            needed = chunk * _ceil(_ceil(state_page, token_bytes), chunk)
        else:
            needed = alignment * _ceil(state_page, alignment * token_bytes)
        block_size = max(block_size, needed)
        state_page = max(state_page, block_size * token_bytes)
    layers = []
    for entry in others:
        kind, window = _KINDS[type(entry.cache)](entry)
        slots = block_size
        if isinstance(entry.cache, CompressedCache | IndexerCache):
            slots = _ceil(block_size, entry.cache.compress_ratio)
        layers.append(PoolLayer(kind, entry.count, slots * entry.slot_bytes, block_size, window))
    for entry in states:
        page = state_page if others else entry.state_bytes
        layers.append(PoolLayer("state", entry.count, page, 0))
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


def _uniform(layers: list[PoolLayer], block_size: int, profile: EngineProfile, options: PoolOptions) -> Pool:
    """One group of full-attention layers whose pages differ: num_blocks = available // sum of pages (0.11+)."""
    total = sum(layer.page_bytes * layer.count for layer in layers)
    count = sum(layer.count for layer in layers)
    largest = max(layers, key=lambda layer: layer.page_bytes)
    return _pool((Group(largest, count),), total, 0, block_size, profile, options)


def _packed(layers: list[PoolLayer], block_size: int, profile: EngineProfile, options: PoolOptions) -> Pool:
    """DeepSeek-V4 (0.24+): one group a spec, a block as large as the largest group's pages together."""
    groups = tuple(Group(layer, layer.count) for layer in layers)
    size = max(layer.page_bytes * layer.count for layer in layers)
    return _pool(groups, size, 0, block_size, profile, options)


def _unified(layers: list[PoolLayer], profile: EngineProfile) -> list[PoolLayer]:
    """Smaller pages get proportionally larger blocks until all pages are equal (0.12+)."""
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
        needed = _ceil(layer.count, size)
        whole, extra = divmod(layer.count, needed)
        groups += [Group(layer, whole + (1 if index < extra else 0)) for index in range(needed)]
    tensors = max(group.layers for group in groups)
    padding = sum(tensors - group.layers for group in groups)
    page = max(layer.page_bytes for layer in layers)
    return _pool(tuple(groups), page * tensors, padding, block_size, profile, options)


def _blocks_needed(layer: PoolLayer, length: int, options: PoolOptions) -> int:
    """Blocks one request of `length` tokens takes in one group (kv_cache_interface.py max_memory_usage_bytes)."""
    if layer.kind == "state":
        if options.state_mode == "all":
            return _ceil(length, max(layer.block_size, options.block_size))
        return (2 if options.state_mode == "align" else 1) + options.speculative_tokens
    size = layer.block_size
    if layer.kind == "sliding":
        return _ceil(min(layer.window - 1 + options.tokens_in_flight, length), size) + 1
    if layer.kind == "chunked":
        return _ceil(min(layer.window + options.tokens_in_flight, length), size)
    if layer.kind == "cross":
        return _ceil(layer.window, size)
    return _ceil(_ceil(length, options.context_parallel_size), size)


def _ceil(amount: int, unit: int) -> int:
    """Whole units that cover the amount."""
    return -(-amount // unit)
