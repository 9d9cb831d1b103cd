"""One line of a memory breakdown: how many bytes, how sure, by which arithmetic, from which source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Evidence = Literal["exact", "derived", "measured", "assumed"]
Side = Literal["low", "best", "high"]
SIDES: tuple[Side, ...] = ("low", "best", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A memory term on one GPU.

    Args:
        name: what it is ("weights", "activation_peak").
        low, best, high: bytes; equal where the arithmetic is exact.
        evidence: "exact" from the config, "derived" from the program's known behaviour, "measured" a constant
            with a source, "assumed" what the user can change.
        formula: the arithmetic with its numbers put in, as on paper.
        source: paper, or engine file and version, or the measurement.
    """

    name: str
    low: int
    best: int
    high: int
    evidence: Evidence
    formula: str
    source: str

    def at(self, side: Side) -> int:
        """Bytes at one side of the band."""
        return {"low": self.low, "best": self.best, "high": self.high}[side]


def exact(name: str, size_bytes: int, formula: str, source: str) -> Component:
    """A component whose arithmetic leaves no doubt."""
    return Component(
        name=name,
        low=size_bytes,
        best=size_bytes,
        high=size_bytes,
        evidence="exact",
        formula=formula,
        source=source,
    )
