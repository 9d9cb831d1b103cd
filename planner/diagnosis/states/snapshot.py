"""A memory snapshot of torch: segments, blocks and the trace of allocations, in flat columns. Sizes in bytes.

Blocks and events are kept in arrays (about 35 bytes each), so that a snapshot of millions of events stays small.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# active_awaiting_free is the documentation's name for what the C++ writes as active_pending_free.
STATES = ("active_allocated", "active_pending_free", "inactive")
ACTIVE, PENDING, INACTIVE = range(3)
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "other",
)
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM = range(8)
OTHER = len(ACTIONS) - 1


class Frame(NamedTuple):
    """A line of a stack."""

    filename: str
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class StackRef:
    """The number of a stack in the table of stacks."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of device memory that the allocator has from the driver; its blocks are a range of the columns.

    Attributes:
        pool_id: (0, 0) for the default pool; others are private pools (CUDA graphs, MemPool).
    """

    device: int
    address: int
    total_size: int
    allocated_size: int
    active_size: int
    stream: int
    segment_type: str
    pool_id: tuple[int, int]
    is_expandable: bool
    first_block: int
    blocks: int

    @property
    def block_range(self) -> range:
        """Indices of its blocks in the columns."""
        return range(self.first_block, self.first_block + self.blocks)


@dataclass(slots=True)
class Columns:
    """Blocks and events, a value an index. A stack of -1 means none."""

    block_address: array[int] = field(default_factory=lambda: array("Q"))
    block_size: array[int] = field(default_factory=lambda: array("Q"))
    block_requested: array[int] = field(default_factory=lambda: array("Q"))
    block_state: array[int] = field(default_factory=lambda: array("b"))
    block_stack: array[int] = field(default_factory=lambda: array("i"))
    action: array[int] = field(default_factory=lambda: array("b"))
    address: array[int] = field(default_factory=lambda: array("Q"))
    size: array[int] = field(default_factory=lambda: array("Q"))
    stream: array[int] = field(default_factory=lambda: array("Q"))
    time_us: array[int] = field(default_factory=lambda: array("Q"))
    stack: array[int] = field(default_factory=lambda: array("i"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The file's content.

    Attributes:
        traces: a range of event indices for each device, in device order; empty without recorded history.
        settings: allocator_settings as far as they are plain values.
    """

    segments: tuple[Segment, ...]
    columns: Columns
    stacks: Sequence[tuple[Frame, ...]]
    traces: tuple[range, ...]
    settings: dict[str, str]


def problems(snapshot: Snapshot) -> tuple[str, ...]:
    """Sentences on segments whose own figures do not add up; empty for what torch writes."""
    c = snapshot.columns
    uneven = unlike = 0
    for segment in snapshot.segments:
        blocks = segment.block_range
        uneven += sum(c.block_size[i] for i in blocks) != segment.total_size
        active = sum(c.block_size[i] for i in blocks if c.block_state[i] == ACTIVE)
        unlike += active != segment.allocated_size
    found = []
    if uneven:
        found.append(f"{uneven} segments whose blocks do not add up to their size")
    if unlike:
        found.append(f"{unlike} segments whose active blocks do not add up to allocated_size")
    return tuple(found)
