"""Sizes as programs print them: bytes with the precision that the print allows.

A printed "2.58 GiB" stands for any size within half a hundredth of a GiB; comparisons between figures of one
message use that margin. torch prints KiB/MiB/GiB, some programs print KB/MB/GB and mean powers of 1024 all the
same (torch's MPS back end to 2.7, Paddle, XLA), so every unit here is 1024-based; the few programs that mean
powers of ten say so at their pattern.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

# A number of at most 25 digits with at most 9 decimals, point or comma (locale), or with thousands commas and a point.
NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,6}\.\d{1,9}|\d{1,25}(?:[.,]\d{1,9})?)"
UNIT = r"(?:bytes|byte|[KMGTP]i?B|B)"

_SIZE = re.compile(rf"({NUMBER})\s?({UNIT}|[KMGTP])?", re.IGNORECASE)
_SCALE = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}

# Above this a figure is no memory at all: 2^64 and its neighbours are "not available" or a negative number.
ABSURD_BYTES = 1 << 50
NOT_AVAILABLE_BYTES = 1 << 64

Value = int | float | str | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a message: the value, how far off the print may be, and the text it came from."""

    value: Value
    margin_bytes: int = 0
    text: str = ""


def size_pattern(name: str) -> str:
    """Regular expression of a printed size as the group `name`, to be read by the converter "size"."""
    return rf"(?<![\d.,])(?P<{name}__size>{NUMBER}\s?{UNIT})\b"


def read_number(text: str) -> Fraction:
    """The number in a text that matches NUMBER; a lone comma is a decimal comma."""
    if "," in text and "." in text:
        return Fraction(text.replace(",", ""))
    return Fraction(text.replace(",", "."))


@lru_cache(maxsize=4_096)  # a log repeats its figures
def read_size(text: str, *, unit_bytes: int | None = None) -> Figure:
    """The size in `text` as a Figure in bytes; `unit_bytes` when the unit is known from elsewhere.

    Raises:
        ValueError: the text is no number with a unit.
    """
    match = _SIZE.fullmatch(text.strip().lstrip("-"))
    if match is None:
        raise ValueError(text)
    sign = -1 if text.strip().startswith("-") else 1
    number, unit = match.groups()
    letter = (unit or "").lower()[:1]
    scale = unit_bytes if unit_bytes is not None else _SCALE[letter]
    value = read_number(number) * scale
    decimals = len(re.split(r"[.,]", number)[-1]) if re.search(r"[.,]", number) else 0
    margin = 0 if scale == 1 else int(Fraction(scale, 2 * 10**decimals)) + 1
    return Figure(value=sign * round(value), margin_bytes=margin, text=text.strip())


def is_sane(size_bytes: int | None) -> bool:
    """Whether the figure can be a size of memory at all, not a missing value printed as a number."""
    return size_bytes is not None and 0 <= size_bytes < ABSURD_BYTES
