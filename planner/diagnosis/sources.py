"""Open what is given to diagnose, and tell what it is from its first bytes. Nothing is read whole but small texts."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from planner.errors import SourceError

Kind = Literal["text", "pickle", "json"]
_PEEK_BYTES = 512
STDIN = "-"

_FOREIGN = (
    (b"PK\x03\x04", "a zip file (torch.save writes one)", "dump the snapshot with torch.cuda.memory._dump_snapshot"),
    (b"\x1f\x8b", "a gzip file", "unpack it first"),
    (b"\xfd7zXZ", "an xz file", "unpack it first"),
    (b"BZh", "a bzip2 file", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
    (b"%PDF", "a PDF", "copy the text out of it"),
    (b"\x89PNG", "a picture", "the text of the message is needed"),
    (b"\xff\xd8\xff", "a picture", "the text of the message is needed"),
    (b"SQLite format 3", "a database", "give a log or a snapshot"),
    (b"\x7fELF", "a program", "give a log or a snapshot"),
)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The file, or standard input for "-", as a stream that can be peeked at.

    Raises:
        SourceError: it does not exist, is a folder, or cannot be read.
    """
    if path == STDIN:
        yield _peekable(sys.stdin.buffer)
        return
    try:
        if Path(path).is_dir():
            raise SourceError(f"{path} is a folder; give a log, a memory_summary or a snapshot file")
        stream = open(path, "rb")  # noqa: SIM115 - closed below, when the reader is done
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    with stream:
        try:
            yield stream
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror or error}") from None


def _peekable(stream: BinaryIO) -> BinaryIO:
    return stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # type: ignore[type-var]


def kind_of(stream: BinaryIO, name: str) -> Kind:
    """What the stream holds, judged by its first bytes; they stay unread.

    Raises:
        SourceError: an archive, picture or other foreign format, or an empty file.
    """
    head: bytes = stream.peek(_PEEK_BYTES)[:_PEEK_BYTES]  # type: ignore[attr-defined]
    if not head:
        raise SourceError(f"{name} is empty")
    for magic, what, instead in _FOREIGN:
        if head.startswith(magic):
            raise SourceError(f"{name} is {what}; {instead}")
    if head[0] == 0x80 and len(head) > 1 and head[1] <= 5:
        return "pickle"
    return "json" if head.lstrip()[:1] in (b"{", b"[") else "text"
