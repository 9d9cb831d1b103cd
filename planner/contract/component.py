"""One line of a memory breakdown: how many bytes, how sure, by which arithmetic, from which source."""

from __future__ import annotations

import math
from collections.abc import Iterable
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
        cause: components of one cause rise and fall together; empty: a cause of its own.
    """

    name: str
    low: int
    best: int
    high: int
    evidence: Evidence
    formula: str
    source: str
    cause: str = ""

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


def total(components: Iterable[Component], side: Side) -> int:
    """The sum of components at one side of its band, in bytes.

    Spreads of independent components are added in quadrature, since they do not all lie at one end at once; those of
    one cause are added directly first. The low end likewise.
    """
    best = 0
    spreads: dict[str, int] = {}
    for component in components:
        best += component.best
        spread = component.at(side) - component.best
        if spread:
            cause = component.cause or component.name
            spreads[cause] = spreads.get(cause, 0) + spread
    if len(spreads) < 2:
        return best + sum(spreads.values())
    distance = math.isqrt(sum(spread * spread for spread in spreads.values()))
    return best + distance if side == "high" else best - distance
