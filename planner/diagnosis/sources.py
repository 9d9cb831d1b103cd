"""Open what is given to diagnose, and tell what it is from its first bytes. Nothing is read whole but small texts.

An input without an end (a device, a pipe that is never closed) is read to MOST_BYTES, and no longer than QUIET_SECONDS
without a new byte; what was read until then is diagnosed, with a note.
"""

from __future__ import annotations

import io
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from planner.errors import SourceError
from planner.standard_input import standard_input

Kind = Literal["text", "pickle", "json"]
_PEEK_BYTES = 512
STDIN = "-"
# The most that is read of an input without a length, and of any file.
MOST_BYTES = 2 << 30
MOST_FILE_BYTES = 64 << 30
QUIET_SECONDS = 60.0

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


class _Bounded(io.RawIOBase):
    """A stream that ends at a number of bytes, and when no byte has come for a while; `stopped` says why."""

    def __init__(self, stream: BinaryIO, most: int, *, waits: bool) -> None:
        self.stream, self.left, self.waits = stream, most, waits
        self.most = most
        self.stopped: tuple[str, ...] = ()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self.left <= 0:
            self.stopped = (f"stopped after {self.most >> 30} GiB: the input has no end in sight",)
            return 0
        if self.waits and not select.select([self.stream], [], [], QUIET_SECONDS)[0]:
            self.stopped = (f"stopped: no new byte for {QUIET_SECONDS:.0f} seconds",)
            return 0
        data = self._read(min(len(buffer), self.left))
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)

    def _read(self, size: int) -> bytes:
        once = getattr(self.stream, "read1", None)
        data: bytes | None = once(size) if once is not None else self.stream.read(size)
        return data or b""


class Source(io.BufferedReader):
    """A bounded stream that can be peeked at."""

    @property
    def stopped(self) -> tuple[str, ...]:
        """Why reading ended before the input did; empty when it did not."""
        return self.raw.stopped  # type: ignore[attr-defined, no-any-return]


def shown(name: str) -> str:
    """A name as it may be printed: no control characters, cut to a line."""
    plain = "".join(ch if ch.isprintable() else "?" for ch in name.encode("utf-8", "replace").decode("utf-8"))
    return plain if len(plain) <= 200 else plain[:197] + "..."


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """The file, or standard input for "-", as a bounded stream that can be peeked at.

    Raises:
        SourceError: it does not exist, is a folder, or cannot be read.
    """
    if path == STDIN:
        yield _bounded(standard_input())
        return
    name = shown(path)
    try:
        if Path(path).is_dir():
            raise SourceError(f"{name} is a folder; give a log, a memory_summary or a snapshot file")
        # a pipe without a writer must not wait for one to come
        stream = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115 - closed below
    except (OSError, ValueError) as error:
        raise SourceError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    with stream:
        try:
            yield _bounded(stream)
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror or error}") from None


def _without_waiting(path: str, flags: int) -> int:
    import os

    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "set_blocking") and not stat.S_ISFIFO(os.fstat(number).st_mode):
        os.set_blocking(number, True)
    return number


def _bounded(stream: BinaryIO) -> Source:
    """The stream with its bounds: files by their length, what has none by bytes and by silence."""
    import os

    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return Source(_Bounded(stream, MOST_BYTES, waits=False), 1 << 20)
    if stat.S_ISREG(mode):
        return Source(_Bounded(stream, MOST_FILE_BYTES, waits=False), 1 << 20)
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return Source(_Bounded(stream, MOST_BYTES, waits=waits and sys.platform != "win32"), 1 << 20)


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
