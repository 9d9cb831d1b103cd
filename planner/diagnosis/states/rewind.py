"""The allocator's state of one device at a moment: now, or rewound through the trace to an earlier event.

A snapshot taken after the exception shows the state after unwinding. The state at the failure follows from it by
undoing, backwards, every event after the last `oom`: an `alloc` removes its block, a `free_completed` brings it back,
`segment_*` events do the same with segments. Sizes of events are the requested bytes, so a block that comes back has
them rounded to 512 B; a block of the large pool can have been up to 1 MiB larger. Sizes in bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace

from planner.diagnosis.states.snapshot import (
    ACTIVE,
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    INACTIVE,
    OOM,
    PENDING,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Segment,
    Snapshot,
)
from planner.errors import SourceError

# c10/core/AllocatorConfig.h, torch 2.14: blocks, the small pool, its segments, small large-pool segments, and the rest.
BLOCK_BYTES = 512
SMALL_BYTES = 1 << 20
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_SEGMENT_BYTES = 20 << 20
LARGE_LEAST_BYTES = 10 << 20
LARGE_STEP_BYTES = 2 << 20
# A process has a few expandable segments, each mapped in a few runs.
MOST_MAPPED = 50_000


def block_bytes(size: int) -> int:
    """What a tensor of `size` bytes takes in a segment: a multiple of 512 B, at least 512 B."""
    return max(BLOCK_BYTES, -(-size // BLOCK_BYTES) * BLOCK_BYTES)


def segment_bytes(size: int) -> int:
    """What is asked from the driver for `size`: 2 MiB up to 1 MiB, 20 MiB below 10 MiB, else a multiple of 2 MiB."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < LARGE_LEAST_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // LARGE_STEP_BYTES) * LARGE_STEP_BYTES


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of address space that the allocator has, with the pool that it serves."""

    address: int
    size: int
    stream: int
    segment_type: str
    pool_id: tuple[int, int]
    is_expandable: bool


@dataclass(slots=True)
class AllocatorState:
    """A device's spans and live blocks at one event.

    Attributes:
        live: address to size of blocks that are allocated or await their free.
        pending: addresses of live blocks whose free was requested and is not completed.
        mapped: start addresses of the expandable spans, sorted.
        event: index of the event in the columns; None for the snapshot's own state.
        undone: how many events were undone to get here.
    """

    device: int
    spans: dict[int, Span] = field(default_factory=dict)
    live: dict[int, int] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    mapped: list[int] = field(default_factory=list)
    event: int | None = None
    undone: int = 0
    live_bytes: int = 0

    @property
    def reserved_bytes(self) -> int:
        """Sum of the spans: what torch.cuda.memory_reserved would say."""
        return sum(span.size for span in self.spans.values())

    @property
    def allocated_bytes(self) -> int:
        """Live blocks without those that await their free: what torch.cuda.memory_allocated would say."""
        return self.live_bytes - sum(self.live[a] for a in self.pending if a in self.live)

    def put(self, address: int, size: int) -> None:
        """Add a live block."""
        self.live_bytes += size - self.live.get(address, 0)
        self.live[address] = size

    def drop(self, address: int) -> None:
        """Remove a live block."""
        self.live_bytes -= self.live.pop(address, 0)
        self.pending.discard(address)

    def map(self, span: Span) -> None:
        """Add a range of an expandable segment."""
        if span.address not in self.spans:
            insort(self.mapped, span.address)
        self.spans[span.address] = span

    def unmap(self, address: int, size: int) -> None:
        """Take a range out of the expandable segments; what remains on either side stays.

        Raises:
            SourceError: more ranges than any allocator maps.
        """
        end = address + size
        if len(self.mapped) > MOST_MAPPED:
            raise SourceError(f"more than {MOST_MAPPED} mapped ranges: not a snapshot as torch writes it")
        first = max(0, bisect_right(self.mapped, address) - 1)
        touched = [a for a in self.mapped[first : bisect_left(self.mapped, end)] if address < a + self.spans[a].size]
        for start in touched:
            span = self.spans.pop(start)
            del self.mapped[bisect_left(self.mapped, start)]
            for low, high in ((start, address), (end, start + span.size)):
                if low < high:
                    self.map(replace(span, address=low, size=high - low))


def final_state(snapshot: Snapshot, device: int) -> AllocatorState:
    """The state that the snapshot itself describes."""
    moment = AllocatorState(device=device)
    c = snapshot.columns
    for segment in snapshot.segments:
        if segment.device != device:
            continue
        span = _span(segment)
        if span.is_expandable:
            moment.map(span)
        else:
            moment.spans[span.address] = span
        for index in segment.block_range:
            if c.block_state[index] == INACTIVE:
                continue
            address = c.block_address[index]
            moment.put(address, c.block_size[index])
            if c.block_state[index] == PENDING:
                moment.pending.add(address)
    return moment


def _span(segment: Segment) -> Span:
    return Span(
        segment.address,
        segment.total_size,
        segment.stream,
        segment.segment_type,
        segment.pool_id,
        segment.is_expandable,
    )


def last_oom(snapshot: Snapshot, device: int) -> int | None:
    """The index of the device's last `oom` event, None when the trace has none."""
    c = snapshot.columns
    return next((i for i in reversed(trace_of(snapshot, device)) if c.action[i] == OOM), None)


def trace_of(snapshot: Snapshot, device: int) -> range:
    """The device's events; empty without recorded history."""
    return snapshot.traces[device] if 0 <= device < len(snapshot.traces) else range(0)


def rewind(snapshot: Snapshot, device: int, to_event: int) -> AllocatorState:
    """The state right before event `to_event`: everything from there on undone."""
    moment = final_state(snapshot, device)
    trace = trace_of(snapshot, device)
    for index in range(trace.stop - 1, to_event - 1, -1):
        _undo(snapshot, moment, index)
    moment.event, moment.undone = to_event, max(0, trace.stop - 1 - to_event)
    return moment


def peak_event(snapshot: Snapshot, device: int) -> int | None:
    """The event after which most was allocated within the trace; None without events."""
    trace = trace_of(snapshot, device)
    if not trace:
        return None
    c = snapshot.columns
    allocated = final_state(snapshot, device).live_bytes
    best, best_event = allocated, trace.stop
    for index in reversed(trace):
        if c.action[index] == ALLOC:
            allocated -= block_bytes(c.size[index])
        elif c.action[index] == FREE_COMPLETED:
            allocated += block_bytes(c.size[index])
        if allocated > best:
            best, best_event = allocated, index
    return best_event


def _undo(snapshot: Snapshot, moment: AllocatorState, index: int) -> None:
    c = snapshot.columns
    action, address, size = c.action[index], c.address[index], c.size[index]
    if action == ALLOC:
        moment.drop(address)
    elif action == FREE_COMPLETED:
        moment.put(address, block_bytes(size))
        moment.pending.add(address)
    elif action == FREE_REQUESTED:
        moment.pending.discard(address)
    elif action == SEGMENT_ALLOC:
        moment.spans.pop(address, None)
    elif action == SEGMENT_FREE:
        kind = "small" if size <= SMALL_SEGMENT_BYTES else "large"
        moment.spans[address] = Span(address, size, c.stream[index], kind, (0, 0), False)
    elif action == SEGMENT_MAP:
        moment.unmap(address, size)
    elif action == SEGMENT_UNMAP:
        kind = "small" if size <= SMALL_SEGMENT_BYTES else "large"
        moment.map(Span(address, size, c.stream[index], kind, (0, 0), True))


def live_stacks(snapshot: Snapshot, moment: AllocatorState) -> dict[int, int]:
    """Number of the stack (-1: unknown) that allocated each live block, by address.

    The last `alloc` of the address before the moment says it; where the ring has lost that event, the block in the
    snapshot, if it is still the same.
    """
    c = snapshot.columns
    trace = trace_of(snapshot, moment.device)
    stop = trace.stop if moment.event is None else moment.event
    found = dict.fromkeys(moment.live, -1)
    for segment in snapshot.segments:
        if segment.device == moment.device:
            for index in segment.block_range:
                if c.block_state[index] != INACTIVE and c.block_address[index] in found:
                    found[c.block_address[index]] = c.block_stack[index]
    for index in range(trace.start, stop):
        if c.action[index] == ALLOC and c.address[index] in found:
            found[c.address[index]] = c.stack[index]
    return found


def pieces(span: Span, addresses: list[int], moment: AllocatorState, *, floor: int = 0) -> list[tuple[int, int, int]]:
    """The pieces (address, size, state) of a span in order, from `floor` on.

    Args:
        addresses: all live addresses of the moment, sorted.
        floor: the end of the span before, so that overlapping spans of a damaged file are walked once.
    """
    found: list[tuple[int, int, int]] = []
    at, end = max(span.address, floor), span.address + span.size
    for position in range(bisect_left(addresses, at), len(addresses)):
        address = addresses[position]
        if address >= end:
            break
        size = min(moment.live[address], end - address)
        if size <= 0 or address + size <= at:
            continue
        if address > at:
            found.append((at, address - at, INACTIVE))
        start = max(at, address)
        found.append((start, address + size - start, PENDING if address in moment.pending else ACTIVE))
        at = address + size
    if at < end:
        found.append((at, end - at, INACTIVE))
    return found
