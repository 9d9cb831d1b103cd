"""One card's memory as a bar of characters, a letter or a colour for each component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_RESET = "\x1b[0m"
_SPARE = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the bar: its name, its bytes, the letter it would have and its terminal colour (0 to 255)."""

    name: str
    size: int
    letter: str
    colour: int


def bar(segments: Sequence[Segment], total_bytes: int, *, width: int = 72, colour: bool = False) -> str:
    """The bar and its legend, two lines.

    Every segment that holds anything gets at least one cell; the cells add up to `width`.
    """
    shown = [segment for segment in segments if segment.size > 0]
    cells = _cells([segment.size for segment in shown], total_bytes, width)
    if colour:
        drawn = "".join(
            f"\x1b[48;5;{segment.colour}m{' ' * count}{_RESET}" for segment, count in zip(shown, cells, strict=True)
        )
        words = [f"\x1b[38;5;{segment.colour}m■{_RESET} {segment.name}" for segment in shown]
    else:
        letters = _letters(shown)
        drawn = "".join(letter * count for letter, count in zip(letters, cells, strict=True))
        words = [f"{letter} {segment.name}" for letter, segment in zip(letters, shown, strict=True)]
    legend = "\n".join(_lines(words, [len(segment.name) + 4 for segment in shown], width))
    return f"[{drawn}{' ' * (width - sum(cells))}]\n{legend}"


def _letters(segments: Sequence[Segment]) -> list[str]:
    """A letter for each segment, none twice in any case (W and w are one to an eye); "#" where all are taken.

    One that is taken gives way to the next of the segment's own name.
    """
    found: list[str] = []
    used: set[str] = set()
    for segment in segments:
        own = (letter for letter in segment.name if letter.isascii() and letter.isalnum())
        wanted = (segment.letter, *own, *_SPARE)
        found.append(next((letter for letter in wanted if letter.lower() not in used), "#"))
        used.add(found[-1].lower())
    return found


def _lines(words: Sequence[str], lengths: Sequence[int], width: int) -> list[str]:
    """The legend in lines of at most the bar's width; lengths are those that a reader sees."""
    lines: list[list[str]] = [[]]
    used = 0
    for word, length in zip(words, lengths, strict=True):
        if lines[-1] and used + length > width:
            lines.append([])
            used = 0
        lines[-1].append(word)
        used += length
    return [" " + "  ".join(line) for line in lines]


def _cells(sizes: Sequence[int], total: int, width: int) -> list[int]:
    whole = max(total, sum(sizes), 1)
    cells = [max(1, round(size * width / whole)) for size in sizes]
    while sum(cells) > width and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    return cells
