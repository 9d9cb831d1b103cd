"""Read a memory snapshot by its schema, from torch's pickle or from JSON.

Layouts of torch 1.4 to 2.14: a list of segments (memory_snapshot) or a dict with segments and device_traces
(_snapshot, _dump_snapshot). Every key is optional but the sizes; unknown keys are ignored. Finished records go into
columns at once, so a file of some hundred MB needs no more memory than those.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, NoReturn

from planner.diagnosis.states import plain_pickle
from planner.diagnosis.states.plain_pickle import CONSUMED, Consumed
from planner.diagnosis.states.snapshot import ACTIONS, OOM, OTHER, STATES, Columns, Frame, Segment, Snapshot, StackRef
from planner.errors import SourceError

# Limits of what is kept. A history of a million events with a hundred thousand stacks is a large real one.
MOST_EVENTS = 12_000_000
MOST_BLOCKS = 4_000_000
MOST_SEGMENTS = 200_000
MOST_STACKS = 2_000_000
MOST_FRAMES = 2_000_000
MOST_STACKED_FRAMES = 20_000_000
MOST_JSON_BYTES = 64 << 20
_MOST_SIZE = 1 << 63
_MOST_LINES_OF_LONG = 64


def _refuse(why: str) -> NoReturn:
    raise SourceError(f"not a memory snapshot as torch writes it: {why}")


def _int(row: dict[str, Any], key: str, default: int | None = None) -> int:
    value = row.get(key, default)
    if type(value) is not int or not -1 <= value < _MOST_SIZE * 2:
        _refuse(f"{key} is no size or number")
    return max(0, value)


class _Builder:
    """Takes finished dicts and lists over from the reader."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.stacks: list[tuple[Frame, ...]] = []
        self._stack_numbers: dict[tuple[Frame, ...], int] = {}
        self._frames: dict[Frame, Frame] = {}
        self._segments = 0
        self._stacked_frames = 0
        self._claimed_blocks = 0

    def dict_done(self, row: dict[Any, Any]) -> object:
        if "action" in row:
            return self._event(row)
        if "filename" in row and "name" in row:
            return self._frame(row)
        if "state" in row and "size" in row:
            return self._block(row)
        if "blocks" in row and "total_size" in row:
            return self._segment(row)
        if "real_size" in row:
            return self._stack_of(row.get("frames"))
        return row

    def list_done(self, items: list[Any]) -> object:
        if type(items[0]) is not Frame or not all(type(item) is Frame for item in items):
            return items
        return StackRef(self._number(tuple(items)))

    def _number(self, frames: tuple[Frame, ...]) -> int:
        number = self._stack_numbers.setdefault(frames, len(self.stacks))
        if number == len(self.stacks):
            self._stacked_frames += len(frames)
            if number >= MOST_STACKS or self._stacked_frames > MOST_STACKED_FRAMES:
                _refuse(f"more than {MOST_STACKS} different stacks, or {MOST_STACKED_FRAMES} lines in them")
            self.stacks.append(frames)
        return number

    def _frame(self, row: dict[str, Any]) -> Frame:
        filename, name, line = row.get("filename"), row.get("name"), row.get("line", 0)
        if not (type(filename) is str and type(name) is str and type(line) is int):
            _refuse("a frame without file, name and line")
        if len(self._frames) > MOST_FRAMES:
            _refuse(f"more than {MOST_FRAMES} different lines in stacks")
        frame = Frame(filename, name, line)
        return self._frames.setdefault(frame, frame)

    def _stack_of(self, frames: object) -> StackRef:
        if isinstance(frames, StackRef):
            return frames
        if isinstance(frames, list) and frames:
            # only lists of a thousand lines and more come here unfinished, and one can be shared by many events
            top = frames[:_MOST_LINES_OF_LONG]
            if all(type(item) is Frame for item in top):
                return StackRef(self._number(tuple(top)))
        return StackRef(-1)

    def _event(self, row: dict[str, Any]) -> Consumed:
        c = self.columns
        if len(c.action) >= MOST_EVENTS:
            _refuse(f"more than {MOST_EVENTS} events")
        name = row["action"]
        action = ACTIONS.index(name) if type(name) is str and name in ACTIONS else OTHER
        c.action.append(action)
        # an oom has the device's free memory in place of an address
        c.address.append(_int(row, "device_free" if action == OOM and "device_free" in row else "addr", 0))
        c.size.append(_int(row, "size", 0))
        c.stream.append(_int(row, "stream", 0))
        c.time_us.append(_int(row, "time_us", 0))
        c.stack.append(self._stack_of(row.get("frames")).number)
        return CONSUMED

    def _block(self, row: dict[str, Any]) -> Consumed:
        c = self.columns
        if len(c.block_size) >= MOST_BLOCKS:
            _refuse(f"more than {MOST_BLOCKS} blocks")
        state = "active_pending_free" if row["state"] == "active_awaiting_free" else row["state"]
        if type(state) is not str or state not in STATES:
            _refuse("a block of unknown state")
        size = _int(row, "size")
        history = row.get("history")
        latest = history[0] if isinstance(history, list) and history else row.get("frames")
        c.block_address.append(_int(row, "address", 0))
        c.block_size.append(size)
        c.block_requested.append(_int(row, "requested_size", size))
        c.block_state.append(STATES.index(state))
        c.block_stack.append(self._stack_of(latest).number)
        return CONSUMED

    def _segment(self, row: dict[str, Any]) -> Segment:
        self._segments += 1
        if self._segments > MOST_SEGMENTS:
            _refuse(f"more than {MOST_SEGMENTS} segments")
        blocks = row["blocks"]
        count = len(blocks) if isinstance(blocks, list) else -1
        first = self._claimed_blocks
        if count < 0 or first + count != len(self.columns.block_size) or not all(b is CONSUMED for b in blocks):
            _refuse("a segment whose blocks are not its own")
        self._claimed_blocks += count
        pool = row.get("segment_pool_id", (0, 0))
        return Segment(
            device=_int(row, "device", 0),
            address=_int(row, "address", 0),
            total_size=_int(row, "total_size"),
            allocated_size=_int(row, "allocated_size", 0),
            active_size=_int(row, "active_size", 0),
            stream=_int(row, "stream", 0),
            segment_type="small" if row.get("segment_type") == "small" else "large",
            pool_id=_pool(pool),
            is_expandable=row.get("is_expandable") is True,
            first_block=first,
            blocks=count,
        )

    def finish(self, top: object) -> Snapshot:
        """The snapshot from the outermost object.

        Raises:
            SourceError: it is no snapshot.
        """
        if isinstance(top, list):
            top = {"segments": top, "device_traces": []}
        if not isinstance(top, dict) or not isinstance(top.get("segments"), list):
            _refuse("no list of segments")
        segments = tuple(s for s in top["segments"] if isinstance(s, Segment))
        if len(segments) != len(top["segments"]) or len({id(s) for s in segments}) != len(segments):
            _refuse("an entry among the segments that is none, or the same one twice")
        settings = top.get("allocator_settings")
        plain = settings.items() if isinstance(settings, dict) else ()
        return Snapshot(
            segments=_with_addresses(segments, self.columns),
            columns=self.columns,
            stacks=self.stacks,
            traces=_traces(top, len(self.columns.action)),
            settings={str(k)[:80]: str(v)[:200] for k, v in list(plain)[:64] if isinstance(v, str | int | float)},
        )


def _pool(value: object) -> tuple[int, int]:
    if isinstance(value, tuple | list) and len(value) == 2 and all(type(v) is int for v in value):
        return (value[0], value[1])
    return (0, 0)


def _traces(top: dict[str, Any], events: int) -> tuple[range, ...]:
    """The ranges of events of each device; host traces stand among them in the order of the file."""
    found: tuple[range, ...] = ()
    at = 0
    for key, value in top.items():
        if key not in ("device_traces", "host_traces") or not isinstance(value, list):
            continue
        lists = value if value and isinstance(value[0], list) else [value] if value and key == "host_traces" else value
        ranges = []
        for trace in lists:
            if not isinstance(trace, list) or at + len(trace) > events or not all(e is CONSUMED for e in trace):
                _refuse("a trace that is no list of its own events")
            ranges.append(range(at, at + len(trace)))
            at += len(trace)
        if key == "device_traces":
            found = tuple(ranges)
    if at != events:
        _refuse("events outside the traces")
    return found


def _with_addresses(segments: tuple[Segment, ...], columns: Columns) -> tuple[Segment, ...]:
    """The segments; blocks without an address (torch to 2.0) get theirs by adding up sizes."""
    for segment in segments:
        at = segment.address
        for index in segment.block_range:
            if columns.block_address[index] == 0 and at < _MOST_SIZE:
                columns.block_address[index] = at
            at += columns.block_size[index]
    return segments


def read_pickle(stream: BinaryIO) -> Snapshot:
    """The snapshot in a pickle; nothing in it is executed.

    Raises:
        SourceError: not plain data, not a snapshot, cut off, or larger than any limit.
    """
    builder = _Builder()
    return builder.finish(plain_pickle.load(stream, builder.dict_done, builder.list_done))


def read_json(text: str) -> Snapshot:
    """The snapshot in a JSON text (memory_snapshot() or _snapshot() saved with json.dump).

    Raises:
        SourceError: not JSON, not a snapshot, or larger than 64 MiB.
    """
    if len(text) > MOST_JSON_BYTES:
        raise SourceError("a JSON snapshot of more than 64 MiB; give the pickle that torch writes")
    builder = _Builder()
    try:
        return builder.finish(json.loads(text, object_hook=builder.dict_done))
    except (ValueError, RecursionError):
        raise SourceError("not JSON, or nested too deeply") from None
