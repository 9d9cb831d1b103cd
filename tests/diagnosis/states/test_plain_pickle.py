"""Hostile snapshots: real attack payloads are refused, nothing is executed, and memory stays bounded."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import pickle
import random
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.diagnosis import diagnose
from planner.diagnosis.states import snapshot_reader
from planner.diagnosis.states.snapshot_reader import read_pickle
from planner.errors import SourceError
from tests.diagnosis.states.allocator import busy_allocator


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


class Shell:
    """Runs a command when a careless reader loads it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


class Setter:
    """Sets state through BUILD."""

    def __reduce__(self) -> Any:
        return collections.OrderedDict, (), {"x": 1}


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("nested", [False, True], ids=["top", "nested"])
def test_commands_are_not_run(tmp_path: Path, protocol: int, nested: bool) -> None:
    witness = tmp_path / "witness"
    payload: Any = Shell(f"touch {witness}")
    if nested:
        payload = {"segments": [], "device_traces": [[{"action": "alloc", "addr": payload}]]}
    path = tmp_path / "attack.pickle"
    path.write_bytes(pickle.dumps(payload, protocol))
    with pytest.raises(SourceError) as error:
        if protocol < 2:  # no header: the file is taken for text elsewhere, the reader itself must refuse it too
            read_pickle(io.BytesIO(path.read_bytes()))
        else:
            diagnose(path)
    assert not witness.exists()
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)


EVENT = b"}(" + text("action") + text("alloc") + b"u"
SEGMENT = b"}(" + text("total_size") + b"K\x00" + text("blocks") + b"]u"
ATTACKS = {
    "reduce": b"cos\nsystem\n(S'true'\ntR.",
    "inst": b"\x80\x02(X\x04\x00\x00\x00trueios\nsystem\n.",
    "obj": b"\x80\x02(cos\nsystem\nX\x04\x00\x00\x00trueo.",
    "stack global": b"\x80\x04" + text("os") + text("system") + b"\x93" + text("true") + b"\x85R.",
    "newobj": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "build": pickle.dumps(Setter(), 4),
    "ordered dict": pickle.dumps(collections.OrderedDict(a=1), 4),
    "persistent id": b"\x80\x02Pfoo\n.",
    "extension": b"\x80\x02\x82\x01.",
    "memo bomb": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "get of nothing": b"\x80\x02h\x05.",
    "get far away": b"\x80\x02j\xff\xff\xff\xff.",
    "long integer": b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".",
    "longer integer": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "text of 2 GB": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "text of 2^60": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b".",
    "bytes of 2^60": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b".",
    "bytearray of 2^60": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b".",
    "marks": b"\x80\x04" + b"(" * 100_000 + b".",
    "nested lists": b"\x80\x04" + b"](" * 100_000,
    "nested tuples": b"\x80\x04)" + b"\x85" * 100_000 + b".",
    "nested tuple as key": b"\x80\x04}()" + b"\x85" * 100_000 + b"Nu.",
    "billion laughs": b"\x80\x04]\x94(Ne"
    + b"".join(b"]\x94(h" + bytes([i]) + b"h" + bytes([i]) + b"e" for i in range(60))
    + b".",
    "list in itself": b"\x80\x04]\x94(h\x00e.",
    "dict in itself": b"\x80\x04}\x94(" + text("segments") + b"h\x00u.",
    "colliding keys": b"\x80\x04}(" + b"".join(b"\x8a\x08" + struct.pack("<q", i) + b"N" for i in range(9_000)) + b"u.",
    "many keys": b"\x80\x04}(" + b"".join(text(str(i)) + b"N" for i in range(9_000)) + b"u.",
    "one segment a million times": b"\x80\x04}(" + text("segments") + b"](" + SEGMENT.replace(b"}", b"}\x94", 1)
    + b"h\x00" * 1_000_000 + b"eu.",
    "one trace many times": b"\x80\x04}(" + text("segments") + b"]" + text("device_traces") + b"](]\x94(" + EVENT
    + b"e" + b"h\x00" * 100_000 + b"eu.",
    "one event twice": b"\x80\x04}(" + text("segments") + b"]" + text("device_traces") + b"](]("
    + EVENT.replace(b"}", b"}\x94", 1) + b"h\x00eeu.",
    "nothing": b"\x80\x04.",
    "cut": b"\x80\x04}(" + text("segments"),
    "zeros": b"\x80\x04" + bytes(1_000),
    "pop": b"\x80\x0400000.",
    "append to dict": b"\x80\x04}(NNe.",
    "set in list": b"\x80\x04](" + text("a") + b"Nu.",
    "odd items": b"\x80\x04}(" + text("a") + b"u.",
    "bad utf-8": b"\x80\x04\x8c\x02\xff\xfe.",
}  # fmt: skip


@pytest.mark.parametrize("payload", ATTACKS.values(), ids=ATTACKS.keys())
def test_attacks_are_refused_in_bounded_time_and_memory(payload: bytes) -> None:
    start = time.perf_counter()
    tracemalloc.start()
    try:
        with pytest.raises(SourceError) as error:
            read_pickle(io.BytesIO(payload))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 160 << 20
    assert time.perf_counter() - start < 30
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("opcode", [b"N", b"]", b"}", b")"], ids=["none", "lists", "dicts", "tuples"])
def test_a_flood_of_values_is_refused_before_it_fills_memory(opcode: bytes) -> None:
    with pytest.raises(SourceError, match="than any snapshot holds"):
        read_pickle(io.BytesIO(b"\x80\x04(" + opcode * 17_000_000 + b"t."))


def test_counts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = b"\x80\x04}(" + text("segments") + b"](" + SEGMENT * 51 + b"eu."
    assert len(read_pickle(io.BytesIO(payload)).segments) == 51
    monkeypatch.setattr(snapshot_reader, "MOST_SEGMENTS", 50)
    with pytest.raises(SourceError, match="more than 50 segments"):
        read_pickle(io.BytesIO(payload))


def test_memory_of_a_history_is_a_hundred_bytes_an_event() -> None:
    """A snapshot is as large in memory as its columns, not as Python's dicts would be (500 bytes an event)."""
    data = busy_allocator(1, steps=300).snapshot()
    events = data["device_traces"][0]
    data["device_traces"][0] = [dict(e) for _ in range(40_000 // len(events)) for e in events]
    payload = pickle.dumps(data, protocol=4)
    count = len(data["device_traces"][0])
    del data, events
    tracemalloc.start()
    try:
        snapshot = read_pickle(io.BytesIO(payload))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(snapshot.columns.action) == count
    assert peak < 10 * (1 << 20) + 120 * count


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_damaged_snapshots_are_read_or_refused(seed: int) -> None:
    rnd = random.Random(seed)
    payload = bytearray(PLAIN)
    for _ in range(rnd.randrange(1, 6)):
        payload[rnd.randrange(len(payload))] = rnd.randrange(256)
    del payload[rnd.randrange(len(payload) // 2, len(payload) + 1) :]
    with contextlib.suppress(SourceError):
        read_pickle(io.BytesIO(bytes(payload)))


PLAIN = pickle.dumps(busy_allocator(3, steps=40).snapshot(), protocol=4)


@given(st.binary(max_size=400))
@example(b"].")  # an empty list: what torch gives before the first allocation
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused_or_hold_nothing(data: bytes) -> None:
    with contextlib.suppress(SourceError):
        assert read_pickle(io.BytesIO(b"\x80\x04" + data)).segments == ()


def test_other_formats_are_named(tmp_path: Path) -> None:
    for magic, word in ((b"PK\x03\x04rest", "zip"), (b"\x1f\x8brest", "gzip"), (b"\x89PNG....", "picture")):
        path = tmp_path / "file"
        path.write_bytes(magic)
        with pytest.raises(SourceError, match=word):
            diagnose(path)
