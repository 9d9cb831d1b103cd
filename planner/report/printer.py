"""The one place that lays text out: no wider than the terminal, columns leave by importance, prose is wrapped."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from planner.printable import without_controls

NARROW: Final = 80
_GAP: Final = 2
_NARROWEST_TEXT: Final = 12
Width = int | Literal["terminal"] | None
"""Columns to print in; None is without end, "terminal" what the terminal has, 80 where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A column of a table: its title, its side, and when it leaves where there is no room.

    Args:
        importance: 0 stays; of the others the highest number leaves first.
    """

    title: str
    right: bool = False
    importance: int = 0


def columns_of(width: Width) -> int | None:
    """The width as a number of columns."""
    if width != "terminal":
        return width
    return shutil.get_terminal_size((NARROW, 24)).columns


def printed(blocks: Iterable[str], width: Width = "terminal") -> str:
    """Blocks under each other: one of a single line is prose and is wrapped, others stand as they are."""
    room = columns_of(width)
    shown = (without_controls(block, keep_colours=True) for block in blocks)
    return "\n".join(block if "\n" in block else wrapped(block, room) for block in shown)


def wrapped(line: str, room: int | None) -> str:
    """A line in lines no wider than the room, the further ones indented by two more; a longer word stands out."""
    if room is None or _visible(line) <= room:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    found = textwrap.wrap(
        line.strip(),
        room,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(found)


def _visible(line: str) -> int:
    if "\x1b" not in line:
        return len(line)
    import re  # only colours need it

    return len(re.sub(r"\x1b\[[0-9;]*m", "", line))


def command(text: str, width: Width = "terminal") -> str:
    """A command as one line, or, on a terminal, broken before options where it is wider."""
    room = columns_of(width)
    if room is None or len(text) <= room or not sys.stdout.isatty():
        return text
    lines, line = [], ""
    for word in _options(text):
        if line and len(line) + 1 + len(word) > room - 2:
            lines.append(line)
            line = "  " + word
        else:
            line = f"{line} {word}" if line else word
    return " \\\n".join([*lines, line])


def _options(text: str) -> list[str]:
    """The command in pieces that each begin with an option."""
    pieces: list[str] = []
    for word in text.split(" "):
        if not pieces or word.startswith("-"):
            pieces.append(word)
        else:
            pieces[-1] += f" {word}"
    return pieces


def table(
    rows: Sequence[Sequence[str]], headings: Sequence[Heading], *, markdown: bool = False, width: Width = "terminal"
) -> str:
    """Rows under headings; what leaves for want of room is named below."""
    from tabulate import tabulate  # JSON and CSV need not pay for it

    room = None if markdown else columns_of(width)
    kept, left_out = _kept(rows, headings, room)
    cells = [[row[index] for index in kept] for row in rows]
    shown = [headings[index] for index in kept]
    if markdown:
        cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in cells]
    elif room is not None:
        cells = _wrapped_cells(cells, shown, room)
    text = tabulate(
        cells or [[""] * len(shown)],
        [heading.title for heading in shown],
        tablefmt="pipe" if markdown else "simple",
        disable_numparse=True,
        colalign=["right" if heading.right else "left" for heading in shown],
    )
    lines = [line.rstrip() for line in text.splitlines()]
    if not rows:
        lines = lines[:2]
    alike = [f"{headings[index].title} {rows[0][index]}" for index in left_out if _is_constant(rows, index)]
    if alike:
        lines.append(wrapped(f"every row: {', '.join(alike)}", room))
    missing = [headings[index].title for index in left_out if not _is_constant(rows, index)]
    if missing:
        lines.append(wrapped(f"(without {', '.join(missing)}: --wide prints all)", room))
    return "\n".join(lines)


def _is_constant(rows: Sequence[Sequence[str]], index: int) -> bool:
    """Every row says the same, so that saying it once is enough."""
    return len(rows) > 1 and len({row[index] for row in rows}) == 1


def _widths(rows: Sequence[Sequence[str]], headings: Sequence[Heading], index: int) -> int:
    # tabulate keeps two columns beside a heading
    return max([len(headings[index].title) + _GAP, *(len(row[index]) for row in rows)])


def _kept(rows: Sequence[Sequence[str]], headings: Sequence[Heading], room: int | None) -> tuple[list[int], list[int]]:
    """(columns that stay, columns that leave); those whose rows are all alike leave first."""
    kept = list(range(len(headings)))
    if room is None:
        return kept, []
    widths = [_widths(rows, headings, index) for index in kept]
    left_out = []
    while sum(widths[index] for index in kept) + _GAP * (len(kept) - 1) > room:
        leaving = max(kept, key=lambda index: _leaves(rows, headings, index))
        if not headings[leaving].importance:
            break
        kept.remove(leaving)
        left_out.append(leaving)
    return kept, sorted(left_out)


def _leaves(rows: Sequence[Sequence[str]], headings: Sequence[Heading], index: int) -> tuple[bool, int, int]:
    importance = headings[index].importance
    return importance > 0 and _is_constant(rows, index), importance, index


def _wrapped_cells(cells: list[list[str]], headings: Sequence[Heading], room: int) -> list[list[str]]:
    """Cells of the widest text columns wrapped until the rows have room."""
    widths = [_widths(cells, headings, index) for index in range(len(headings))]
    limits: dict[int, int] = {}
    text = [index for index, heading in enumerate(headings) if not heading.right]
    while text and sum(widths) + _GAP * (len(widths) - 1) > room:
        widest = max(text, key=lambda index: widths[index])
        over = sum(widths) + _GAP * (len(widths) - 1) - room
        limit = max(_NARROWEST_TEXT, len(headings[widest].title), widths[widest] - over)
        if limit >= widths[widest]:
            text.remove(widest)
            continue
        widths[widest] = limits[widest] = limit
    return [
        [
            "\n".join(textwrap.wrap(cell, limits[index]) or [""]) if index in limits else cell
            for index, cell in enumerate(row)
        ]
        for row in cells
    ]
