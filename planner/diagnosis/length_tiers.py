"""Padded lengths (tiers) for a list of sequence lengths: the fewest that keep the waste below a bound.

Waste is padding tokens / padded tokens over the whole list. Few distinct lengths let an allocator reuse its blocks and
let graphs and kernels be compiled once; each tier costs padding. Lengths and tiers are in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from planner.errors import UsageError

DEFAULT_WASTE_PERCENT = 10.0
DEFAULT_MULTIPLE = 8
# Bounds of the work: lengths that are told apart after rounding, and tiers.
_MOST_DISTINCT = 2_048
_MOST_TIERS = 64
LONGEST = 1 << 24
MOST_LENGTHS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A padded length and the sequences that go into it: how many, and their tokens before padding."""

    length: int
    sequences: int
    tokens: int

    @property
    def padded_tokens(self) -> int:
        """Tokens after padding."""
        return self.length * self.sequences

    @property
    def waste_percent(self) -> float:
        """Padding in per cent of the padded tokens."""
        return 100.0 * (self.padded_tokens - self.tokens) / self.padded_tokens if self.padded_tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The tiers, shortest first, and what they cost against padding everything to the longest."""

    tiers: tuple[Tier, ...]
    multiple: int
    max_waste_percent: float

    @property
    def tokens(self) -> int:
        """Tokens before padding."""
        return sum(t.tokens for t in self.tiers)

    @property
    def padded_tokens(self) -> int:
        """Tokens after padding to the tiers."""
        return sum(t.padded_tokens for t in self.tiers)

    @property
    def waste_percent(self) -> float:
        """Padding in per cent of the padded tokens."""
        return 100.0 * (self.padded_tokens - self.tokens) / self.padded_tokens

    @property
    def one_length_waste_percent(self) -> float:
        """The waste of padding every sequence to the longest tier."""
        padded = self.tiers[-1].length * sum(t.sequences for t in self.tiers)
        return 100.0 * (padded - self.tokens) / padded

    @property
    def meets_bound(self) -> bool:
        """Whether the waste is below the bound; rounding up to the multiple alone can exceed it."""
        return self.waste_percent <= self.max_waste_percent

    def to_json(self) -> dict[str, Any]:
        """The tiers and totals under plain names; waste in per cent."""
        return {
            "tiers": [
                {
                    "length": t.length,
                    "sequences": t.sequences,
                    "tokens": t.tokens,
                    "padded_tokens": t.padded_tokens,
                    "waste_percent": round(t.waste_percent, 3),
                }
                for t in self.tiers
            ],
            "multiple": self.multiple,
            "max_waste_percent": self.max_waste_percent,
            "tokens": self.tokens,
            "padded_tokens": self.padded_tokens,
            "waste_percent": round(self.waste_percent, 3),
            "one_length_waste_percent": round(self.one_length_waste_percent, 3),
            "meets_bound": self.meets_bound,
        }


def bucket_lengths(
    lengths: Iterable[int], *, max_waste_percent: float = DEFAULT_WASTE_PERCENT, multiple: int = DEFAULT_MULTIPLE
) -> Buckets:
    """The fewest tiers, multiples of `multiple`, whose total waste is at most `max_waste_percent`.

    For a number of tiers the best ones are found exactly (dynamic programming over the distinct rounded lengths; above
    2,048 of them the multiple is doubled until they are fewer). When no number of tiers meets the bound, because
    rounding alone wastes more, the tiers are those of the least waste.

    Raises:
        UsageError: no length, a length below 1 or above 2^24, a percentage not within 0..100, a multiple below 1.
    """
    if not 0 < max_waste_percent < 100:
        raise UsageError(f"the waste bound {max_waste_percent} is not between 0 and 100 per cent", field="max-waste")
    if not 1 <= multiple <= LONGEST:
        raise UsageError(f"the multiple {multiple} is below 1 or too large", field="multiple")
    counts: dict[int, tuple[int, int]] = {}
    for length in lengths:
        if not 1 <= length <= LONGEST:
            raise UsageError(f"the length {length} is not between 1 and {LONGEST}", field="lengths")
        number, tokens = counts.get(length, (0, 0))
        counts[length] = (number + 1, tokens + length)
    if not counts:
        raise UsageError("no lengths given", field="lengths")
    rows, step = _rounded(counts, multiple)
    return Buckets(tiers=_fewest(rows, max_waste_percent), multiple=step, max_waste_percent=max_waste_percent)


_Row = tuple[int, int, int]


def _rounded(counts: dict[int, tuple[int, int]], multiple: int) -> tuple[list[_Row], int]:
    """Rows (padded length, sequences, tokens) in rising order, and the multiple that was used."""
    while True:
        rows: dict[int, tuple[int, int]] = {}
        for length, (number, tokens) in counts.items():
            padded = -(-length // multiple) * multiple
            have, held = rows.get(padded, (0, 0))
            rows[padded] = (have + number, held + tokens)
        if len(rows) <= _MOST_DISTINCT:
            return [(length, *rows[length]) for length in sorted(rows)], multiple
        multiple *= 2


def _fewest(rows: Sequence[_Row], max_waste_percent: float) -> tuple[Tier, ...]:
    numbers = [0, *accumulate(row[1] for row in rows)]
    tokens = sum(row[2] for row in rows)
    # cost[j]: padded tokens of the first j rows with the tiers so far; row j-1 is always a tier's length
    cost = [0] + [rows[j - 1][0] * numbers[j] for j in range(1, len(rows) + 1)]
    cuts = [[0] * (len(rows) + 1)]
    while 100 * (cost[-1] - tokens) > max_waste_percent * cost[-1] and len(cuts) < min(_MOST_TIERS, len(rows)):
        better, cut = _one_more(rows, numbers, cost)
        cuts.append(cut)
        cost = better
    return _tiers(rows, cuts)


def _one_more(rows: Sequence[_Row], numbers: list[int], cost: list[int]) -> tuple[list[int], list[int]]:
    """The costs with one tier more, and where the last tier begins. The best start rises with the end (monotone)."""
    size = len(rows)
    better, cut = [0] * (size + 1), [0] * (size + 1)
    stack = [(1, size, 0, size - 1)]
    while stack:
        low, high, first, last = stack.pop()
        if low > high:
            continue
        middle = (low + high) // 2
        length = rows[middle - 1][0]
        best, at = min(
            (cost[i] + length * (numbers[middle] - numbers[i]), i) for i in range(first, min(last, middle - 1) + 1)
        )
        better[middle], cut[middle] = best, at
        stack += [(low, middle - 1, first, at), (middle + 1, high, at, last)]
    return better, cut


def _tiers(rows: Sequence[_Row], cuts: list[list[int]]) -> tuple[Tier, ...]:
    tiers = []
    end = len(rows)
    for cut in reversed(cuts):
        start = cut[end]
        group = rows[start:end]
        if group:
            tiers.append(Tier(length=group[-1][0], sequences=sum(r[1] for r in group), tokens=sum(r[2] for r in group)))
        end = start
    return tuple(reversed(tiers))


def parse_lengths(text: str) -> list[int]:
    """Lengths in a text: figures separated by commas, spaces or lines, or one JSON list; a trailing "xN" repeats one.

    Raises:
        UsageError: something that is no whole number, or more than 5 million of them.
    """
    found: list[int] = []
    for word in text.replace(",", " ").replace("[", " ").replace("]", " ").split():
        number, _, times = word.partition("x")
        if not (number.isdecimal() and len(number) <= 9 and (not times or (times.isdecimal() and len(times) <= 9))):
            raise UsageError(f"{word[:40]!r} is not a length; give whole numbers like 512 or 512x20", field="lengths")
        if len(found) + int(times or 1) > MOST_LENGTHS:
            raise UsageError(f"more than {MOST_LENGTHS} lengths; give a sample", field="lengths")
        found += [int(number)] * int(times or 1)
    return found
