"""torch's CUDA caching allocator: what `memory_allocated` counts for a run of allocations, and what it reserves.

A request up to 1 MiB is cut from a 2 MiB segment, one up to 10 MiB from a 20 MiB segment, a larger one gets a segment
of its own in steps of 2 MiB. The smallest free block that holds a request is taken; what remains of it is cut off only
if it is at least 512 B (small) or more than 1 MiB (large), otherwise it counts as allocated with the request.

Source: torch 2.13 c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h (kMinBlockSize, kSmallSize,
kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge; get_free_block, should_split). The constants have been the same
since 1.x.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from planner.units import MIB

MIN_BLOCK: Final = 512
SMALL_SIZE: Final = 1 * MIB
SMALL_SEGMENT: Final = 2 * MIB
LARGE_SEGMENT: Final = 20 * MIB
MIN_LARGE_ALLOCATION: Final = 10 * MIB
ROUND_LARGE: Final = 2 * MIB


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Bytes that a run of allocations makes torch count as allocated, and take from the driver."""

    allocated_bytes: int
    reserved_bytes: int


def rounded(size_bytes: int, unit: int = MIN_BLOCK) -> int:
    """The size rounded up to a multiple of `unit` (default: the smallest block, 512 B)."""
    return -(-size_bytes // unit) * unit


def segment_bytes(size_bytes: int) -> int:
    """What a fresh segment for this request takes from the driver: 2 MiB, 20 MiB, or the size in steps of 2 MiB."""
    size = rounded(size_bytes)
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_LARGE_ALLOCATION:
        return LARGE_SEGMENT
    return rounded(size, ROUND_LARGE)


def occupancy(sizes_bytes: Iterable[int]) -> Occupancy:
    """What live tensors of these sizes occupy, made one after the other on an empty allocator and never freed.

    Qwen2.5-7B's gate_up matrix has exactly 259 MiB: its segment has 260, the last MiB is not cut off, 260 MiB count.
    """
    return _occupancy(tuple(sizes_bytes))


@lru_cache(maxsize=64)
def _occupancy(sizes_bytes: tuple[int, ...]) -> Occupancy:
    free: dict[bool, list[int]] = {True: [], False: []}
    allocated = reserved = 0
    for wanted in sizes_bytes:
        if wanted <= 0:
            continue
        size = rounded(wanted)
        small = size <= SMALL_SIZE
        blocks = free[small]
        index = bisect_left(blocks, size)
        if index < len(blocks):
            block = blocks.pop(index)
        else:
            block = segment_bytes(size)
            reserved += block
        rest = block - size
        if rest >= MIN_BLOCK if small else rest > SMALL_SIZE:
            insort(blocks, rest)
            allocated += size
        else:
            allocated += block
    return Occupancy(allocated, reserved)
