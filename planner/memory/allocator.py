"""How torch's CUDA caching allocator rounds: what `memory_allocated` counts for a tensor, and what a segment takes.

Source: torch 2.13 c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h (kMinBlockSize, kSmallSize,
kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge; should_split). The constants have been the same since 1.x.
"""

from __future__ import annotations

from typing import Final

from planner.units import MIB

MIN_BLOCK: Final = 512
SMALL_SIZE: Final = 1 * MIB
SMALL_SEGMENT: Final = 2 * MIB
LARGE_SEGMENT: Final = 20 * MIB
MIN_LARGE_ALLOCATION: Final = 10 * MIB
ROUND_LARGE: Final = 2 * MIB


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


def allocated_bytes(size_bytes: int) -> int:
    """What `memory_allocated` counts for a tensor that gets a segment of its own, or the next piece of a shared one.

    A large segment is cut only when more than 1 MiB would remain; what is not cut off counts as allocated.
    Qwen2.5-7B's gate_up matrix has exactly 259 MiB and counts 260.
    """
    size = rounded(size_bytes)
    if size < MIN_LARGE_ALLOCATION:
        return size
    segment = rounded(size, ROUND_LARGE)
    return segment if segment - size <= SMALL_SIZE else size
