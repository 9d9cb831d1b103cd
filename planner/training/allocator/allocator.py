"""What torch's allocator makes of the step's tensors: how each counts, and what is reserved for them.

Reserved over allocated depends on the order of sizes and is measured, not derived: `fragmentation.csv`. Blocks that are
reserved and free are given back before an allocation fails, so a run needs less than it reserves on a large card.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files

from planner.memory.allocator import MIN_LARGE_ALLOCATION, ROUND_LARGE, SMALL_SIZE, rounded


@dataclass(frozen=True, slots=True)
class Ratio:
    """Reserved over allocated: what is seen at least, usually, and in nine of ten runs; with its source."""

    low: Fraction
    best: Fraction
    high: Fraction
    source: str


def segment_share(size_bytes: int) -> int:
    """What `memory_allocated` counts for an activation of this size that gets a segment of its own.

    A large segment comes in steps of 2 MiB, and is cut only when more than 1 MiB would remain; what is not cut off
    counts as allocated.
    """
    size = rounded(size_bytes)
    if size < MIN_LARGE_ALLOCATION:
        return size
    segment = rounded(size, ROUND_LARGE)
    return segment if segment - size <= SMALL_SIZE else size


def reserved_ratio(*, trains_all: bool, eager: bool, quantised: bool) -> Ratio:
    """The band of reserved over allocated for this kind of run."""
    kind = "full" if trains_all and not eager else ("eager" if eager else "sdpa") + ("-quantised" if quantised else "")
    return _rows()[kind]


@cache
def _rows() -> dict[str, Ratio]:
    text = files("planner.training").joinpath("allocator/fragmentation.csv").read_text("utf-8")
    return {
        row["kind"]: Ratio(Fraction(row["low"]), Fraction(row["best"]), Fraction(row["high"]), row["source"])
        for row in csv.DictReader(text.splitlines())
    }
