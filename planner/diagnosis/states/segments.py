"""Segments and pools of a moment: what is active, awaiting its free, or inactive, and the largest free blocks.

Sizes in bytes. An inactive piece is a run of free space between live blocks of one segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.diagnosis.states.rewind import BLOCK_BYTES, SMALL_BYTES, AllocatorState, Span, pieces
from planner.diagnosis.states.snapshot import ACTIVE, INACTIVE, PENDING, Frame, Snapshot

_MAP_CELLS = 64
_MAP_SIGNS = {ACTIVE: "#", PENDING: "~", INACTIVE: "."}
_DEFAULT_POOL = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """One segment: its pool, its bytes by state, and a picture of it.

    Attributes:
        picture: 64 cells, "#" mostly live, "~" mostly awaiting its free, "." free, "+" in part.
    """

    address: int
    size_bytes: int
    active_bytes: int
    pending_bytes: int
    inactive_bytes: int
    largest_inactive_bytes: int
    blocks: int
    stream: int
    segment_type: str
    pool_id: tuple[int, int]
    is_expandable: bool
    picture: str

    @property
    def is_partly_used(self) -> bool:
        """Whether some of it is live, so that it cannot be given back."""
        return self.inactive_bytes < self.size_bytes

    @property
    def pool(self) -> tuple[str, int, tuple[int, int], bool]:
        """What a request must match to be served from it: type, stream, pool, and whether it can grow."""
        return (self.segment_type, self.stream, self.pool_id, self.is_expandable)

    def to_json(self) -> dict[str, Any]:
        """The segment under the names of the JSON contract."""
        return {
            "address": self.address,
            "size_bytes": self.size_bytes,
            "active_bytes": self.active_bytes,
            "awaiting_free_bytes": self.pending_bytes,
            "inactive_bytes": self.inactive_bytes,
            "largest_inactive_bytes": self.largest_inactive_bytes,
            "fragmentation": _fragmentation(self.inactive_bytes, self.largest_inactive_bytes),
            "blocks": self.blocks,
            "stream": self.stream,
            "segment_type": self.segment_type,
            "pool_id": list(self.pool_id),
            "is_expandable": self.is_expandable,
            "map": self.picture,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """All segments that can serve the same requests."""

    segment_type: str
    stream: int
    pool_id: tuple[int, int]
    is_expandable: bool
    segments: int
    size_bytes: int
    active_bytes: int
    pending_bytes: int
    inactive_bytes: int
    largest_inactive_bytes: int
    partly_used_inactive_bytes: int

    @property
    def is_private(self) -> bool:
        """Whether it belongs to a CUDA graph or a MemPool."""
        return self.pool_id != _DEFAULT_POOL

    def to_json(self) -> dict[str, Any]:
        """The pool under the names of the JSON contract."""
        return {
            "segment_type": self.segment_type,
            "stream": self.stream,
            "pool_id": list(self.pool_id),
            "is_private": self.is_private,
            "is_expandable": self.is_expandable,
            "segments": self.segments,
            "size_bytes": self.size_bytes,
            "active_bytes": self.active_bytes,
            "awaiting_free_bytes": self.pending_bytes,
            "inactive_bytes": self.inactive_bytes,
            "largest_inactive_bytes": self.largest_inactive_bytes,
            "partly_used_inactive_bytes": self.partly_used_inactive_bytes,
            "fragmentation": _fragmentation(self.inactive_bytes, self.largest_inactive_bytes),
        }


def _fragmentation(inactive: int, largest: int) -> float:
    """1 - largest free piece / free bytes: 0 when all free space is one piece."""
    return round(1 - largest / inactive, 4) if inactive else 0.0


def segment_states(moment: AllocatorState) -> list[SegmentState]:
    """The segments of a moment, largest first."""
    addresses = sorted(moment.live)
    states, floor = [], 0
    for span in sorted(moment.spans.values(), key=lambda s: s.address):
        states.append(_state(span, pieces(span, addresses, moment, floor=floor)))
        floor = max(floor, span.address + span.size)
    return sorted(states, key=lambda s: (-s.size_bytes, s.address))


def _state(span: Span, parts: list[tuple[int, int, int]]) -> SegmentState:
    sums = {ACTIVE: 0, PENDING: 0, INACTIVE: 0}
    for _, size, state in parts:
        sums[state] += size
    return SegmentState(
        address=span.address,
        size_bytes=span.size,
        active_bytes=sums[ACTIVE],
        pending_bytes=sums[PENDING],
        inactive_bytes=sums[INACTIVE],
        largest_inactive_bytes=max((size for _, size, state in parts if state == INACTIVE), default=0),
        blocks=len(parts),
        stream=span.stream,
        segment_type=span.segment_type,
        pool_id=span.pool_id,
        is_expandable=span.is_expandable,
        picture=_picture(span, parts),
    )


def _picture(span: Span, parts: list[tuple[int, int, int]]) -> str:
    """A line of cells; a cell shows the state of all its bytes, "+" when they differ."""
    cells = min(_MAP_CELLS, max(1, span.size // BLOCK_BYTES))
    signs: list[str] = [""] * cells
    for address, size, state in parts:
        first = (address - span.address) * cells // span.size
        last = (address - span.address + size - 1) * cells // span.size
        for cell in range(first, min(last, cells - 1) + 1):
            sign = _MAP_SIGNS[state]
            signs[cell] = sign if signs[cell] in ("", sign) else "+"
    return "".join(sign or "." for sign in signs)


def pool_states(segments: Iterable[SegmentState]) -> list[PoolState]:
    """The segments by what they can serve, largest pool first."""
    groups: dict[tuple[str, int, tuple[int, int], bool], list[SegmentState]] = {}
    for segment in segments:
        groups.setdefault(segment.pool, []).append(segment)
    pools = [
        PoolState(
            segment_type=kind,
            stream=stream,
            pool_id=pool_id,
            is_expandable=expandable,
            segments=len(group),
            size_bytes=sum(s.size_bytes for s in group),
            active_bytes=sum(s.active_bytes for s in group),
            pending_bytes=sum(s.pending_bytes for s in group),
            inactive_bytes=sum(s.inactive_bytes for s in group),
            largest_inactive_bytes=max(s.largest_inactive_bytes for s in group),
            partly_used_inactive_bytes=sum(s.inactive_bytes for s in group if s.is_partly_used),
        )
        for (kind, stream, pool_id, expandable), group in groups.items()
    ]
    return sorted(pools, key=lambda p: -p.size_bytes)


def serving_pools(pools: Iterable[PoolState], size_bytes: int, stream: int) -> list[PoolState]:
    """The default pools that could serve a request of `size_bytes` on `stream`: small to 1 MiB, large above."""
    kind = "small" if size_bytes <= SMALL_BYTES else "large"
    return [p for p in pools if p.segment_type == kind and p.stream == stream and not p.is_private]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in the program that allocated live blocks."""

    label: str
    blocks: int
    size_bytes: int


def top_sites(snapshot: Snapshot, moment: AllocatorState, stacks: dict[int, int], *, most: int = 10) -> list[Site]:
    """The places that hold most of a moment's live bytes, largest first; those without a recorded stack together."""
    sums: dict[str, tuple[int, int]] = {}
    labels: dict[int, str] = {}
    for address, number in stacks.items():
        if number not in labels:
            labels[number] = site_label(snapshot.stacks[number]) if number >= 0 else "(no stack recorded)"
        blocks, size = sums.get(labels[number], (0, 0))
        sums[labels[number]] = (blocks + 1, size + moment.live[address])
    ranked = sorted(sums.items(), key=lambda item: -item[1][1])[:most]
    return [Site(label=label, blocks=blocks, size_bytes=size) for label, (blocks, size) in ranked]


def site_label(frames: tuple[Frame, ...]) -> str:
    """The innermost line of the user's own Python code, as "function (file.py:12)"; folders are left out."""
    python = [f for f in frames if f.filename.endswith(".py")]
    own = [f for f in python if "/torch/" not in f.filename.replace("\\", "/")]
    frame = (own or python or list(frames))[0]
    file = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
    text = f"{frame.name} ({file}:{frame.line})" if file and file != "??" else frame.name
    return "".join(ch for ch in text if ch.isprintable())[:120] or "(unnamed)"
