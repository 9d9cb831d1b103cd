"""Headers of safetensors files: written by the library, by hand, and by nobody sane."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from planner.errors import PlannerError, SourceError
from planner.model.sources.safetensors import LARGEST_HEADER, parse_header, read_safetensors

Entry = dict[str, object]


def entry(dtype: object, shape: object, begin: object, end: object) -> Entry:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float32, "F32"), (torch.float16, "F16"), (torch.bfloat16, "BF16"), (torch.float64, "F64"),
        (torch.float8_e4m3fn, "F8_E4M3"), (torch.float8_e5m2, "F8_E5M2"), (torch.float8_e8m0fnu, "F8_E8M0"),
        (torch.uint8, "U8"), (torch.int8, "I8"), (torch.int16, "I16"), (torch.int32, "I32"), (torch.int64, "I64"),
        (torch.bool, "BOOL"),
    ],
)  # fmt: skip
def test_what_the_library_writes(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    tensors = {"a.weight": torch.zeros(3, 5).to(dtype), "b": torch.zeros(7).to(dtype), "empty": torch.zeros(0, 4)}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = {tensor.name: tensor for tensor in read_safetensors(tmp_path / "model.safetensors")}
    assert {key: tensor.nbytes for key, tensor in found.items()} == {
        key: value.numel() * value.element_size() for key, value in tensors.items()
    }
    assert found["a.weight"].dtype == name
    assert found["a.weight"].shape == (3, 5)
    assert found["a.weight"].file == "model.safetensors"


def test_a_file_without_tensors(tmp_path: Path) -> None:
    assert read_safetensors(write(tmp_path / "a.safetensors", {"__metadata__": {"a": "b"}})) == ()


def test_packed_fours_and_sixes(tmp_path: Path) -> None:
    header = {"a": entry("F4", [2, 32], 0, 32), "b": entry("F6_E2M3", [4], 32, 35)}
    found = read_safetensors(write(tmp_path / "a.safetensors", header, bytes(35)))
    assert [tensor.nbytes for tensor in found] == [32, 3]


GOOD = {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 8, 16)}


@pytest.mark.parametrize(
    ("header", "data", "says"),
    [
        ({"a": entry("F99", [2], 0, 8)}, 8, "dtype 'F99'"),
        ({"a": entry(["F32"], [2], 0, 8)}, 8, "dtype"),
        ({"a": entry("F32", [2], 0, 7)}, 7, "takes 8"),
        ({"a": entry("F32", [2], 8, 0)}, 8, "takes 8"),
        ({"a": entry("F32", [-2], 0, 8)}, 8, "no valid shape"),
        ({"a": entry("F32", [2.0], 0, 8)}, 8, "no valid shape"),
        ({"a": entry("F32", [True], 0, 4)}, 4, "no valid shape"),
        ({"a": entry("F32", "2", 0, 8)}, 8, "no valid shape"),
        ({"a": entry("F32", [1] * 65, 0, 4)}, 4, "no valid shape"),
        ({"a": entry("F32", [1 << 40, 1 << 40], 0, 4)}, 4, "below 2^63"),
        ({"a": entry("F4", [3], 0, 2)}, 2, "whole number of bytes"),
        ({"a": entry("F32", [2], -8, 0)}, 8, "data_offsets"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, 8, "data_offsets"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "data_offsets"),
        ({"a": 3}, 8, "no object"),
        ({"a": entry("F32", [2], 8, 16)}, 16, "begins at byte 8"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, 12, "overlap"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, 20, "leave a gap"),
        (GOOD, 12, "truncated"),
        (GOOD, 20, "no tensor claims"),
        (b'{"a": 1, "a": 2}', 0, "stands twice"),
        (b'{"a": {"dtype": "F32", "dtype": "F32"}}', 0, "stands twice"),
        (b"[1]", 0, "a list"),
        (b"{" * 5, 0, "not valid JSON"),
        (b'{"a":' * 100, 0, "levels deep"),
        (b"\xff\xfe{}", 0, "not UTF-8"),
        (b'{"a": 123456789012345678901234567890}', 0, "digits"),
        (b'{"a": NaN}', 0, "NaN"),
        (b'{"a":[' + b"{}," * 4_100_000 + b"{}]}", 0, "more than"),
    ],
)
def test_headers_that_contradict_themselves(tmp_path: Path, header: object, data: int, says: str) -> None:
    path = write(tmp_path / "bad.safetensors", header, bytes(data))
    with pytest.raises(SourceError, match=r"bad\.safetensors") as caught:
        read_safetensors(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 bytes long"),
        (b"\x01\x02\x03", "3 bytes long"),
        (struct.pack("<Q", 1000) + b"{}", "in a file of 10"),
        (struct.pack("<Q", LARGEST_HEADER + 1), "at most 32 MB"),
        (struct.pack("<Q", (1 << 64) - 1), "at most 32 MB"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x80\x02}q\x00.", "6 bytes long"),
        (b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01", "pickle"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"<html><body>sign in</body>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git lfs pull"),
        (b"GGUF\x03\x00\x00\x00", "GGUF file"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"model\.safetensors") as caught:
        read_safetensors(path)
    assert says in str(caught.value)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        read_safetensors(tmp_path / "absent.safetensors")
    with pytest.raises(SourceError, match="a folder"):
        read_safetensors(tmp_path)
    loop = tmp_path / "loop.safetensors"
    loop.symlink_to(loop)
    with pytest.raises(SourceError, match="loop of symbolic links"):
        read_safetensors(loop)
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="no regular file"):
        read_safetensors(pipe)


@given(st.data())
@settings(max_examples=300, deadline=2000)
def test_mutated_headers_end_in_a_result_or_an_error(data: st.DataObject) -> None:
    header = bytearray(json.dumps(GOOD | {"__metadata__": {"format": "pt"}}).encode())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(header) - 1))
        header[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        if not header:
            break
    try:
        found = parse_header(bytes(header), data_bytes=16, origin="fuzz", file="fuzz")
    except PlannerError:
        return
    assert sum(tensor.nbytes for tensor in found) == 16
