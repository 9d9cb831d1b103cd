"""How near to a card's peak an engine comes: measured bands, each a row of `efficiency.csv` with its source."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Band:
    """A constant of the throughput model: pessimistic, usual and optimistic, with how many readings stand behind it."""

    low: float
    best: float
    high: float
    n: int
    source: str

    def at(self, side: str) -> float:
        """The value at one side; "low" is the one that makes the engine slow."""
        return {"low": self.low, "best": self.best, "high": self.high}[side]


@cache
def band(quantity: str) -> Band:
    """The row of a quantity."""
    text = files("planner.serving").joinpath("efficiency.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["quantity"] == quantity:
            return Band(float(row["low"]), float(row["best"]), float(row["high"]), int(row["n"]), row["source"])
    raise KeyError(quantity)
