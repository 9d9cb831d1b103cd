"""Standard input, which may be closed or hold no bytes, read with a bound."""

from __future__ import annotations

import sys
from typing import BinaryIO

from planner.errors import SourceError


def standard_input() -> BinaryIO:
    """The bytes that are piped in.

    Raises:
        SourceError: it is closed, or something that holds no bytes stands in its place.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise SourceError("standard input is closed; give a file")
    stream: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise SourceError("standard input holds no bytes; give a file")
    return stream


def read_standard_input(most: int) -> bytes:
    """At most so many bytes of it.

    Raises:
        SourceError: as `standard_input`.
    """
    return standard_input().read(most)
