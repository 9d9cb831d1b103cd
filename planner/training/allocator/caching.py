"""Torch's CUDA caching allocator, replayed: requests and frees in order give what is reserved. Sizes in bytes.

Requests are rounded to 512 B; those up to 1 MiB come from segments of 2 MiB, those under 10 MiB from segments of
20 MiB, larger ones from a segment of their own in steps of 2 MiB. The smallest free block that is large enough is
taken (best fit), and cut when more than 512 B (small) or 1 MiB (large) would remain; neighbours that are free are
joined. Streams do not share blocks.

With expandable segments each pool has one segment that grows at its end, by 2 MiB (small) or 20 MiB (large) at a time:
a free block at the end is what a request grows from.

Source: torch 2.13 c10/cuda/CUDACachingAllocator.cpp: ExpandableSegment, try_allocate_expandable_block, round_size,
get_allocation_size, get_free_block, should_split, free_block; c10/core/AllocatorConfig.h.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from planner.memory.allocator import MIN_LARGE_ALLOCATION, SMALL_SIZE

_MIN_BLOCK: Final = 512
_SMALL_SEGMENT: Final = 2 << 20
_MIDDLE_SEGMENT: Final = 20 << 20
_ROUND_LARGE: Final = 2 << 20


class Block:
    """A piece of a segment, in use or free; neighbours in the segment are linked."""

    __slots__ = ("address", "after", "before", "free", "pool", "references", "size")

    def __init__(self, pool: int, size: int, address: int) -> None:
        self.pool, self.size, self.address = pool, size, address
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False
        self.references = 1


class CachingAllocator:
    """Counts what is allocated and reserved.

    Args:
        limit: bytes that the driver has for it (None: without end). A request beyond it gives free segments back first;
            one that fails even so counts all the same.
        expandable: segments grow (PYTORCH_ALLOC_CONF=expandable_segments:True).
    """

    def __init__(self, limit: int | None = None, *, expandable: bool = False) -> None:
        self.limit, self.expandable = limit, expandable
        self._ends: dict[int, Block] = {}
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self._free: dict[int, list[tuple[int, int, Block]]] = {}
        self._next_address = 0
        self._whole = 0  # segments that are wholly free: what could be given back

    def allocate(self, requested: int, stream: int = 0) -> Block:
        """A block of at least this size."""
        size = max(_MIN_BLOCK, -(-requested // _MIN_BLOCK) * _MIN_BLOCK)
        small = size <= SMALL_SIZE
        pool = 2 * stream + small
        free = self._free.get(pool)
        if free is None:
            free = self._free[pool] = []
        at = bisect_left(free, (size,))
        if at < len(free):
            block = free.pop(at)[2]
            self._whole -= block.before is None and block.after is None
        else:
            block = self._segment(pool, size, small)
        left = block.size - size
        if left >= _MIN_BLOCK if small else left > SMALL_SIZE:
            rest = Block(pool, left, block.address + size)
            block.size = size
            rest.before, rest.after, block.after = block, block.after, rest
            if rest.after is not None:
                rest.after.before = rest
            rest.free = True
            if self._ends.get(pool) is block:
                self._ends[pool] = rest
            insort(self._free[pool], (left, rest.address, rest))
        block.free, block.references = False, 1
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def _grown(self, pool: int, size: int, small: bool) -> Block:
        """The end of the pool's segment, grown until it holds the request."""
        end, free = self._ends.get(pool), self._free[pool]
        held = 0
        if end is not None and end.free:
            del free[bisect_left(free, (end.size, end.address))]
            held = end.size
        page = _SMALL_SEGMENT if small else _MIDDLE_SEGMENT
        more = -(-(size - held) // page) * page
        self.reserved += more
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        if end is not None and held:
            end.size += more
            return end
        block = Block(pool, more, self._next_address)
        self._next_address += 1 << 50  # a segment of its own in the address space
        if end is not None:
            block.address, block.before, end.after = end.address + end.size, end, block
        self._ends[pool] = block
        return block

    def _segment(self, pool: int, size: int, small: bool) -> Block:
        if self.expandable:
            return self._grown(pool, size, small)
        if small:
            total = _SMALL_SEGMENT
        elif size < MIN_LARGE_ALLOCATION:
            total = _MIDDLE_SEGMENT
        else:
            total = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        if self.limit is not None and self.reserved + total > self.limit:
            self.give_back()
        self.reserved += total
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved
        block = Block(pool, total, self._next_address)
        self._next_address += total
        return block

    def give_back(self) -> None:
        """Return segments that are wholly free to the driver (`empty_cache`)."""
        if self.expandable or not self._whole:
            return
        self._whole = 0
        for pool, free in self._free.items():
            kept = []
            for entry in free:
                block = entry[2]
                if block.before is None and block.after is None:
                    self.reserved -= block.size
                else:
                    kept.append(entry)
            self._free[pool] = kept

    def release(self, block: Block) -> None:
        """Free a block once everything that holds it has let go."""
        if block.references > 1:
            block.references -= 1
            return
        self.allocated -= block.size
        free = self._free[block.pool]
        before, after = block.before, block.after
        if before is not None and before.free:
            del free[bisect_left(free, (before.size, before.address))]
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            block = before
        if after is not None and after.free:
            del free[bisect_left(free, (after.size, after.address))]
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        block.free = True
        if self.expandable and block.after is None:
            self._ends[block.pool] = block
        self._whole += block.before is None and block.after is None
        insort(free, (block.size, block.address, block))
