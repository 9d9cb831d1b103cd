"""Lines of at most 80 columns; a word that is longer stands out alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

WIDTH = 80


def wrapped(text: str, *, first: str = "", rest: str = "", most: int | None = None) -> list[str]:
    """The text in lines of 80 columns, `first` before the first and `rest` before the others.

    With `most` lines, what is left over is cut with dots.
    """
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    if most is not None and len(lines) > most:
        lines = lines[:most]
        kept = lines[-1]
        lines[-1] = (kept if len(kept) <= WIDTH - 4 else kept[: WIDTH - 4].rsplit(" ", 1)[0]) + " ..."
    return lines or [first.rstrip()]


def bullets(lines: Iterable[str]) -> Iterable[str]:
    """Each text as an item of a list."""
    for line in lines:
        yield from wrapped(line, first="- ", rest="  ")


def typed(text: str, *, indent: str = "    ", most: int = 2) -> list[str]:
    """Something to type, broken before an option where it is too long for a line."""
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    lines = textwrap.wrap(
        text,
        WIDTH - 2,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines[:most]
