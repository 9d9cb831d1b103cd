"""The metadata and tensor list of a GGUF file, memory-mapped and checked as if a stranger wrote them.

Tensor data is never read. Long arrays (the vocabulary) are walked over and only their length is kept. Every count
is checked against the bytes that are left before anything is allocated for it.

Layout (versions 2 and 3): "GGUF", version u32, tensor count u64, key count u64; keys (string, type u32, value);
tensors (string, dimensions u32, that many u64 with the fastest first, type u32, offset u64); data from the next
multiple of general.alignment (32), offsets relative to it. Strings are a u64 length and that many bytes.

Source: ggml docs/gguf.md; gguf-py 0.19.0 `gguf_reader.py`, `constants.py`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.sources.gguf.ggml_types import ggml_types
from planner.model.sources.open_file import mistaken, open_regular
from planner.model.sources.stored import StoredTensor

MAGIC: Final = b"GGUF"
MOST_KEYS: Final = 65_536
MOST_TENSORS: Final = 1_000_000
# Strings of all arrays together; the largest vocabularies and merge lists have under a million.
MOST_STRINGS: Final = 8_000_000
LONGEST_KEPT_STRING: Final = 1 << 16
LONGEST_KEPT_ARRAY: Final = 4096
# Names, strings and arrays together, as Python keeps them: 10,000 tensors with names of 40 characters take 1.6 MB.
MOST_KEPT_BYTES: Final = 256 << 20
_CHARACTER_BYTES: Final = 4
_NUMBER_BYTES: Final = 40
_LONGEST_NAME: Final = 1 << 16
_DEEPEST: Final = 4
_MOST_DIMENSIONS: Final = 4
_LARGEST: Final = 1 << 63
_LARGEST_ALIGNMENT: Final = 1 << 20
_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array of which only the length was kept."""

    length: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | SkippedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What stands before the data.

    Args:
        metadata: every key; arrays of strings, of arrays, and of more than 4,096 numbers as `SkippedArray`.
        tensors: every tensor in the file's order, with bytes that include neither alignment nor padding.
    """

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[StoredTensor, ...]


def read_gguf(path: Path) -> GgufHeader:
    """The header of one file.

    Raises:
        SourceError: not a GGUF file, a version or type that is not known, truncated, or a header that contradicts
            itself; names the path and the key or tensor.
    """
    with open_regular(path) as (stream, size):
        start = stream.read(24)
        if start[:4] != MAGIC:
            raise SourceError(f"{path}: {mistaken(start) or 'does not begin with GGUF, so it is no GGUF file'}")
        if len(start) < 24:
            raise SourceError(f"{path}: is only {size} bytes long; download it again")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _Reader(mapped, size, str(path), path.name).header()


@dataclass(slots=True)
class _Reader:
    """A place in the file, moving forward."""

    data: mmap.mmap
    size: int
    origin: str
    file: str
    at: int = 4
    order: str = "<"
    strings: int = 0
    kept_bytes: int = 0
    metadata: dict[str, Value] = field(default_factory=dict)

    def header(self) -> GgufHeader:
        version = self.number("I")
        if version and not version & 0xFFFF:  # written on a big-endian machine
            self.order, self.at = ">", 4
            version = self.number("I")
        if version not in (2, 3):
            raise SourceError(f"{self.origin}: is GGUF version {version}; versions 2 and 3 are read")
        tensor_count, key_count = self.number("Q"), self.number("Q")
        # the smallest key takes 13 bytes, the smallest tensor 24
        if key_count > MOST_KEYS or key_count * 13 > self.left:
            raise SourceError(f"{self.origin}: claims {key_count:,} metadata keys, which it cannot hold")
        if tensor_count > MOST_TENSORS or tensor_count * 24 > self.left:
            raise SourceError(f"{self.origin}: claims {tensor_count:,} tensors, which it cannot hold")
        for _ in range(key_count):
            key = self.text("a metadata key")
            if key in self.metadata:
                raise SourceError(f"{self.origin}: metadata key {key[:80]!r} stands twice")
            self.metadata[key] = self.value(self.number("I"), key, depth=0)
        listed = [self.tensor() for _ in range(tensor_count)]
        self.check_places(listed)
        return GgufHeader(version=version, metadata=self.metadata, tensors=tuple(tensor for _, tensor in listed))

    @property
    def left(self) -> int:
        return self.size - self.at

    def take(self, count: int) -> int:
        """The place of the next `count` bytes."""
        if count > self.left:
            raise SourceError(f"{self.origin}: ends inside its header (at byte {self.at:,}); download it again")
        place = self.at
        self.at += count
        return place

    def keep(self, size: int) -> None:
        """Counts what the result will hold.

        Raises:
            SourceError: more than any model's metadata and names.
        """
        self.kept_bytes += size
        if self.kept_bytes > MOST_KEPT_BYTES:
            raise SourceError(f"{self.origin}: its metadata and names take more than {MOST_KEPT_BYTES >> 20} MiB")

    def number(self, code: str) -> int:
        width = struct.calcsize(code)
        (value,) = struct.unpack_from(self.order + code, self.data, self.take(width))
        assert isinstance(value, int)
        return value

    def text(self, what: str) -> str:
        length = self.number("Q")
        if length > _LONGEST_NAME or length > self.left:
            raise SourceError(f"{self.origin}: {what} claims {length:,} bytes")
        self.keep(length * _CHARACTER_BYTES)
        place = self.take(length)
        return self.data[place : place + length].decode("utf-8", errors="replace")

    def value(self, kind: int, key: str, depth: int) -> Value:
        where = f"{self.origin}: metadata key {key[:80]!r}"
        if kind in _SCALARS:
            code = self.order + _SCALARS[kind]
            (scalar,) = struct.unpack_from(code, self.data, self.take(struct.calcsize(code)))
            assert isinstance(scalar, int | float)
            return scalar
        if kind == _STRING:
            length = self.number("Q")
            if length > self.left:
                raise SourceError(f"{where} claims a string of {length:,} bytes")
            place = self.take(length)
            kept = min(length, LONGEST_KEPT_STRING)
            self.keep(kept * _CHARACTER_BYTES)
            return self.data[place : place + kept].decode("utf-8", errors="replace")
        if kind == _ARRAY:
            return self.array(where, key, depth + 1)
        raise SourceError(f"{where} has the unknown type {kind}")

    def array(self, where: str, key: str, depth: int) -> Value:
        if depth > _DEEPEST:
            raise SourceError(f"{where} nests arrays more than {_DEEPEST} deep")
        kind, length = self.number("I"), self.number("Q")
        if kind in _SCALARS:
            code = f"{self.order}{length}{_SCALARS[kind]}"
            width = struct.calcsize(self.order + _SCALARS[kind])
            if length > self.left // width:
                raise SourceError(f"{where} claims {length:,} elements, which the file cannot hold")
            place = self.take(length * width)
            if length > LONGEST_KEPT_ARRAY or depth > 1:
                return SkippedArray(length)
            self.keep(length * _NUMBER_BYTES)
            return struct.unpack_from(code, self.data, place)
        if kind not in (_STRING, _ARRAY):
            raise SourceError(f"{where} is an array of the unknown type {kind}")
        if length > self.left // (8 if kind == _STRING else 12):
            raise SourceError(f"{where} claims {length:,} elements, which the file cannot hold")
        self.strings += length
        if self.strings > MOST_STRINGS:
            raise SourceError(f"{self.origin}: its arrays claim more than {MOST_STRINGS:,} strings")
        if kind == _ARRAY:
            for _ in range(length):
                self.array(where, key, depth + 1)
        else:
            self.skip_strings(length, where)
        return SkippedArray(length)

    def skip_strings(self, count: int, where: str) -> None:
        """Walks over `count` strings."""
        unpack = struct.Struct(self.order + "Q").unpack_from
        data, at, last = self.data, self.at, self.size - 8
        for _ in range(count):
            if at > last:
                raise SourceError(f"{where} ends inside an array of strings; download the file again")
            at += 8 + unpack(data, at)[0]
        if at > self.size:
            raise SourceError(f"{where} claims a string longer than the file")
        self.at = at

    def tensor(self) -> tuple[int, StoredTensor]:
        """(offset, tensor) of the next entry of the tensor list."""
        name = self.text("a tensor name")
        where = f"{self.origin}: tensor {name[:80]!r}"
        dimensions = self.number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise SourceError(f"{where} has {dimensions:,} dimensions; at most {_MOST_DIMENSIONS} are possible")
        extents = tuple(self.number("Q") for _ in range(dimensions))
        number, offset = self.number("I"), self.number("Q")
        kind = ggml_types().get(number)
        if kind is None:
            raise SourceError(f"{where} has ggml type {number}, which is not known")
        elements = prod(extents)
        if elements >= _LARGEST:
            raise SourceError(f"{where} claims {extents} elements")
        if (extents[0] if extents else 1) % kind.block:
            raise SourceError(f"{where} has rows of {extents[0]:,}, no multiple of {kind.id}'s block of {kind.block}")
        rows = elements // extents[0] if extents and extents[0] else 1
        size = elements // kind.block * kind.block_bytes + rows * kind.row_bytes
        return offset, StoredTensor(name, kind.id, tuple(reversed(extents)), size, self.file)

    def check_places(self, listed: list[tuple[int, StoredTensor]]) -> None:
        """Every tensor in the file, none upon another, no name twice.

        Raises:
            SourceError: otherwise.
        """
        alignment = self.metadata.get("general.alignment", 32)
        fits = isinstance(alignment, int) and 0 < alignment <= _LARGEST_ALIGNMENT
        if not fits or not isinstance(alignment, int) or alignment & (alignment - 1):
            raise SourceError(f"{self.origin}: general.alignment is no power of two up to {_LARGEST_ALIGNMENT:,}")
        begin = -(-self.at // alignment) * alignment
        names: set[str] = set()
        for offset, tensor in listed:
            where = f"{self.origin}: tensor {tensor.name[:80]!r}"
            if tensor.name in names:
                raise SourceError(f"{where} stands twice")
            names.add(tensor.name)
            if offset % alignment:
                raise SourceError(f"{where} begins at {offset:,}, which is no multiple of {alignment}")
            if begin + offset + tensor.nbytes > self.size:
                raise SourceError(f"{where} reaches beyond the end of the file; download it again")
        placed = sorted(listed, key=lambda item: (item[0], item[1].nbytes))
        for (offset, before), (following, after) in pairwise(placed):
            if offset + before.nbytes > following:
                raise SourceError(
                    f"{self.origin}: tensors {before.name[:80]!r} and {after.name[:80]!r} overlap in the data"
                )
