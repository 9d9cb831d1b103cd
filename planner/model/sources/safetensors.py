"""The header of a safetensors file, checked as if a stranger wrote it. Tensor data is never read.

A file is 8 bytes of header length (little-endian), a JSON object {name: {"dtype", "shape", "data_offsets"}}, and
the data: offsets count from the end of the header, and the tensors fill the data without gap or overlap.

Source: safetensors 0.8.0, `safetensors/src/tensor.rs` (Metadata::validate, Dtype::bitsize, MAX_HEADER_SIZE) and
the format description in its README.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.sources.json_file import parse_json_object
from planner.model.sources.open_file import mistaken, open_regular
from planner.model.sources.stored import StoredTensor

LENGTH_BYTES: Final = 8
# the reference takes 100 MB; as many tensors as below fit a third of it, and reading them stays under 256 MB
LARGEST_HEADER: Final = 32_000_000
MOST_TENSORS: Final = 200_000
_MOST_DIMENSIONS: Final = 64
_LARGEST_SIZE: Final = 1 << 63
_LONGEST_SHOWN: Final = 80
# Commas and brackets are what makes a parsed header large beside its text.
_MOST_COMMAS: Final = 16 * MOST_TENSORS
_MOST_BRACKETS: Final = 4 * MOST_TENSORS

BITS: Final[Mapping[str, int]] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}


def read_safetensors(path: Path, *, file: str | None = None) -> tuple[StoredTensor, ...]:
    """Every tensor of a file, in the order of its data.

    Args:
        file: what to call the file in the result; its own name by default.

    Raises:
        SourceError: not a safetensors file, truncated, or its header contradicts itself; names the path and the
            tensor.
    """
    with open_regular(path) as (stream, size):
        start = stream.read(LENGTH_BYTES)
        length = header_length(start, size=size, origin=str(path), more=stream.read(16))
        stream.seek(LENGTH_BYTES)
        header = stream.read(length)
    if len(header) < length:
        raise SourceError(f"{path}: ends inside its header; download it again")
    return parse_header(header, data_bytes=size - LENGTH_BYTES - length, origin=str(path), file=file or path.name)


def header_length(start: bytes, *, size: int | None, origin: str, more: bytes = b"") -> int:
    """Bytes of the JSON header, from the first 8 bytes of the file.

    Args:
        size: bytes of the whole file, None when not known.
        origin: the file, for messages.
        more: what follows the 8 bytes, to say what the file is if it is something else.

    Raises:
        SourceError: too short, longer than the file or than 32 MB, or another kind of file altogether.
    """
    if len(start) < LENGTH_BYTES:
        raise SourceError(f"{origin}: is {len(start)} bytes long, too short for a safetensors file; download it again")
    other = mistaken(start + more)
    if other:
        raise SourceError(f"{origin}: {other}")
    length = int.from_bytes(start, "little")
    if length > LARGEST_HEADER:
        raise SourceError(
            f"{origin}: claims a header of {length:,} bytes (at most 32 MB); it is no safetensors file of weights"
        )
    if size is not None and length > size - LENGTH_BYTES:
        raise SourceError(f"{origin}: claims a header of {length:,} bytes in a file of {size:,}; download it again")
    return length


def parse_header(header: bytes, *, data_bytes: int | None, origin: str, file: str) -> tuple[StoredTensor, ...]:
    """The tensors a header lists, in the order of their data.

    Args:
        data_bytes: bytes that follow the header, None when not known.
        origin: the file, for messages.
        file: the name that the result carries.

    Raises:
        SourceError: as `read_safetensors`.
    """
    if header.count(b",") > _MOST_COMMAS or header.count(b"{") + header.count(b"[") > _MOST_BRACKETS:
        raise SourceError(f"{origin}: lists more than {MOST_TENSORS:,} tensors")
    entries = parse_json_object(header, origin=f"{origin} (header)", unique_keys=True)
    entries.pop("__metadata__", None)
    placed = [_entry(name, value, origin, file) for name, value in entries.items()]
    placed.sort(key=lambda item: item[:2])
    if placed and placed[0][0] != 0:
        raise SourceError(f"{origin}: its first tensor begins at byte {placed[0][0]:,} of the data, not at 0")
    for (_, end, before), (begin, _, after) in pairwise(placed):
        if begin != end:
            what = "overlap" if begin < end else "leave a gap"
            raise SourceError(f"{origin}: tensors {_short(before.name)} and {_short(after.name)} {what} in the data")
    used = placed[-1][1] if placed else 0
    if data_bytes is not None and used != data_bytes:
        problem = "is truncated; download it again" if used > data_bytes else "has bytes that no tensor claims"
        raise SourceError(f"{origin}: holds {data_bytes:,} bytes of data where its header lists {used:,}: it {problem}")
    return tuple(tensor for _, _, tensor in placed)


def _entry(name: str, value: object, origin: str, file: str) -> tuple[int, int, StoredTensor]:
    """(begin, end, tensor) of one entry of the header."""
    where = f"{origin}: tensor {_short(name)}"
    if not isinstance(value, dict):
        raise SourceError(f"{where} is no object with dtype, shape and data_offsets")
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise SourceError(f"{where} has dtype {_short(dtype)}; known are {', '.join(BITS)}")
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not all(_is_size(size) for size in shape):
        raise SourceError(f"{where} has no valid shape (a list of whole numbers)")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(size) for size in offsets):
        raise SourceError(f"{where} has no valid data_offsets (two whole numbers)")
    begin, end = offsets
    bits = prod(shape) * BITS[dtype]
    if prod(shape) >= _LARGEST_SIZE or bits % 8:
        raise SourceError(f"{where}: shape {_short(shape)} of {dtype} is no whole number of bytes below 2^63")
    if end - begin != bits // 8:
        raise SourceError(f"{where} spans {end - begin:,} bytes; {dtype} of shape {_short(shape)} takes {bits // 8:,}")
    return begin, end, StoredTensor(name, dtype, tuple(shape), bits // 8, file)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_SIZE


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
