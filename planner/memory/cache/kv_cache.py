"""What a sequence costs in cache: bytes a token, bytes a sequence, on one GPU.

These are the logical bytes, what the model needs. What an engine reserves for them (pages, groups, padding) is
`planner.engines.vllm.pool.layout`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from planner.errors import UsageError
from planner.memory.cache.formats import CacheFormat
from planner.model.caches import (
    CacheLayer,
    CompressedCache,
    CrossCache,
    IndexerCache,
    KeyValueCache,
    StateCache,
)
from planner.model.spec import Layer

_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """`count` layers that keep the same thing, on one GPU.

    Args:
        cache: the geometry.
        count: how many layers have it.
        slot_bytes: bytes of one token slot in one layer (0 for recurrent states).
        state_bytes: bytes one sequence keeps in one layer whatever its length (0 for per-token caches).
    """

    cache: CacheLayer
    count: int
    slot_bytes: int
    state_bytes: int

    def sequence_bytes(self, length: int) -> int:
        """Bytes of all `count` layers for one sequence of `length` tokens."""
        if isinstance(self.cache, StateCache):
            return self.count * self.state_bytes
        return self.count * self.slot_bytes * self.cache.slots(length)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCost:
    """Logical cache bytes of one sequence at one length, on one GPU.

    Args:
        bytes_per_token: growth by one further token at this length; a full window no longer grows.
        window_bytes: what bounded windows hold.
        state_bytes: what recurrent layers and cross attention hold.
        total_bytes: everything at this length.
    """

    bytes_per_token: int
    window_bytes: int
    state_bytes: int
    total_bytes: int


def local_key_value_heads(cache: CacheLayer, tensor_parallel_size: int) -> int:
    """Key-value heads on one GPU: divided, and copied where there are more GPUs than heads; a latent counts one.

    Raises:
        UsageError: neither divides the other.
    """
    if not isinstance(cache, KeyValueCache | CrossCache):
        return 1
    heads = cache.num_key_value_heads
    if heads % tensor_parallel_size and tensor_parallel_size % heads:
        raise UsageError(
            f"{heads} key-value heads cannot be shared by {tensor_parallel_size} GPUs", field="tensor_parallel_size"
        )
    return max(1, heads // tensor_parallel_size)


def layer_caches(
    layers: Iterable[Layer],
    cache_format: CacheFormat,
    *,
    tensor_parallel_size: int = 1,
    state_dtype: str = "bfloat16",
    recurrent_dtype: str | None = None,
    honour_model_state_dtype: bool = True,
    speculative_tokens: int = 0,
) -> tuple[LayerCache, ...]:
    """The caches of these layers on one GPU, equal ones counted together, in order of first appearance.

    Args:
        cache_format: storage format of per-token caches.
        state_dtype: storage type of convolution states, and of recurrent states unless stated otherwise.
        recurrent_dtype: the user's choice for recurrent states (mamba_ssm_cache_dtype), or None.
        honour_model_state_dtype: the engine reads the model's own wish for its recurrent state.

    Raises:
        UsageError: heads that the GPUs cannot share.
        UnsupportedQuantization: a cache kind that the format cannot store.
    """
    counts: dict[CacheLayer, int] = {}
    placed = tuple(layers)
    objects = dict(zip(map(id, placed), placed, strict=True))
    for key, places in Counter(map(id, placed)).items():
        for cache in objects[key].caches():
            counts[cache] = counts.get(cache, 0) + places
    found = []
    for cache, count in counts.items():
        if isinstance(cache, StateCache):
            size = 0
            for state in cache.states:
                elements = state.elements(tensor_parallel_size, speculative_tokens=speculative_tokens)
                dtype = state_dtype
                if state.kind == "fixed":
                    dtype = state.dtype or state_dtype
                elif state.kind == "recurrent":
                    wish = state.dtype if honour_model_state_dtype else None
                    dtype = recurrent_dtype or wish or state_dtype
                size += elements * _ELEMENT_BYTES[dtype]
            found.append(LayerCache(cache=cache, count=count, slot_bytes=0, state_bytes=size))
        else:
            heads = local_key_value_heads(cache, tensor_parallel_size)
            found.append(
                LayerCache(cache=cache, count=count, slot_bytes=cache_format.slot_bytes(cache, heads), state_bytes=0)
            )
    return tuple(found)


def sequence_cost(caches: Iterable[LayerCache], length: int) -> SequenceCost:
    """Logical bytes of one sequence of `length` tokens on one GPU."""
    growth = window = state = total = 0
    for entry in caches:
        size = entry.sequence_bytes(length)
        total += size
        if isinstance(entry.cache, StateCache | CrossCache):
            state += size
        elif entry.cache.bounded:
            window += size
            growth += entry.sequence_bytes(length + 1) - size
        elif isinstance(entry.cache, CompressedCache | IndexerCache):
            # one vector for every compress_ratio tokens: the average growth, rounded up
            growth += -(-entry.count * entry.slot_bytes // entry.cache.compress_ratio)
        else:
            growth += entry.count * entry.slot_bytes
    return SequenceCost(bytes_per_token=growth, window_bytes=window, state_bytes=state, total_bytes=total)
