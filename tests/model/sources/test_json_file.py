"""JSON from strangers: what is refused, in one line, with bounded memory."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError, SourceError
from planner.model.sources import json_file
from planner.model.sources.gguf.reader import read_gguf
from planner.model.sources.json_file import parse_json_object, read_json_object

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(alphabet='a"\\[]{}é\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='b"\\[]{}'), inner, max_size=3),
    max_leaves=20,
)


def levels(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(levels, value), default=0)
    return 0


@given(TREES)
@settings(max_examples=300, deadline=None)
def test_depth_is_that_of_the_parsed_text(tree: object) -> None:
    assert json_file._depth(json.dumps(tree)) == levels(tree)
    assert json_file._depth(json.dumps(tree, ensure_ascii=False)) == levels(tree)


@given(
    st.text(alphabet='{}[]":,\\a1 -eENI\n', max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1"))
)
@settings(max_examples=500, deadline=2000)
def test_any_text_ends_well(text: str) -> None:
    try:
        assert isinstance(parse_json_object(text.encode(), origin="t"), dict)
    except PlannerError as error:
        assert "\n" not in str(error) and str(error).startswith("t: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not valid JSON"),
        (b"[]", "holds a list"),
        (b"3", "holds a bare value"),
        (b"\xff", "not UTF-8"),
        (b'{"a": ' + b"9" * 21 + b"}", "an integer of 21 digits"),
        (b'{"a": ' + b"9" * 5_000_000 + b"}", "an integer of 5000000 digits"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "more than 64 levels"),
        (b'{"a": ' * 1_000_000, "more than 64 levels"),
        (b'{"a": 1', "not valid JSON"),
    ],
)
def test_what_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says) as caught:
        parse_json_object(text, origin="some file")
    assert str(caught.value).startswith("some file")
    assert len(str(caught.value)) < 300


def test_what_is_accepted() -> None:
    deepest = b'{"a": ' + b"[" * 63 + b"]" * 63 + b"}"
    assert levels(parse_json_object(deepest, origin="t")) == 64
    assert parse_json_object(b'\xef\xbb\xbf{"a": 1}', origin="t") == {"a": 1}  # a byte order mark
    assert parse_json_object(b'{"a": 1, "a": 2}', origin="t") == {"a": 2}
    with pytest.raises(SourceError, match="'a' stands twice"):
        parse_json_object(b'{"a": 1, "a": 2}', origin="t", unique_keys=True)


def missing(folder: Path) -> Path:
    return folder / "config.json"


def a_folder(folder: Path) -> Path:
    return folder


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def a_loop(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


def too_large(folder: Path) -> Path:
    path = folder / "large.json"
    with path.open("wb") as file:
        file.truncate(17 << 20)
    return path


@pytest.mark.parametrize("make", [missing, a_folder, a_pipe, a_loop, too_large])
def test_paths_that_are_refused(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    with pytest.raises(SourceError) as caught:
        read_json_object(path)
    assert str(path) in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    path.chmod(0)
    with pytest.raises(SourceError, match="cannot be read"):
        read_json_object(path)


@pytest.mark.parametrize(
    "text", [b'{"a": "' + b'\\"' * 1_500_000, b'{"' + b"\\\\" * 1_500_000 + b'":1}', b'{"a": "' + b"\\u1234" * 500_000]
)
def test_memory_stays_near_the_size_of_the_text(text: bytes) -> None:
    """3 MB of escapes took 63 to 191 MB when a repeated group of a regular expression looked for the end of strings."""
    tracemalloc.start()
    try:
        parse_json_object(text, origin="t")
    except SourceError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 * len(text)


def test_metadata_of_a_gguf_is_bounded_as_a_whole(tmp_path: Path) -> None:
    """Every key is within its bound, and yet 80 MB of file became 700 MB of tuples (measured)."""
    path = tmp_path / "many.gguf"
    one = struct.pack("<IIQ", 9, 0, 4096) + bytes(4096)
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 20_000))
        for number in range(20_000):
            file.write(struct.pack("<Q", 5) + b"%05d" % number + one)
    tracemalloc.start()
    with pytest.raises(SourceError, match="take more than 256 MiB"):
        read_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 << 20


def test_what_is_no_number_is_read_as_pythons_reader_has_it() -> None:
    # Nemotron-H publishes the first; the Hub's and transformers' readers take all three
    found = parse_json_object(b'{"a": [0.0, Infinity], "b": -Infinity, "c": NaN}', origin="config.json")
    assert found["a"] == [0.0, float("inf")]
    assert found["b"] == float("-inf")
    assert found["c"] != found["c"]


@pytest.mark.parametrize("value", [b"NaN", b"Infinity"])
def test_a_header_is_json_to_the_letter(value: bytes) -> None:
    with pytest.raises(SourceError, match="is no number"):
        parse_json_object(b'{"a": ' + value + b"}", origin="header", unique_keys=True)
