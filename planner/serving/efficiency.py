"""How near to a card's peak an engine comes (`efficiency.csv`), and how many kernels a layer runs (`kernels.csv`)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Band:
    """A constant of the throughput model: pessimistic, usual and optimistic, with how many readings stand behind it."""

    low: float
    best: float
    high: float
    unit: str
    n: int
    source: str

    def at(self, side: str) -> float:
        """The value at one side; "low" is the one that makes the engine slow."""
        return {"low": self.low, "best": self.best, "high": self.high}[side]


def band(quantity: str) -> Band:
    """The row of a quantity."""
    return _bands()[quantity]


def all_bands() -> Mapping[str, Band]:
    """Every row, in the table's order."""
    return _bands()


def kernels_of(part: str) -> int:
    """Kernels that a part of a layer runs in a decode step."""
    return _kernels()[part]


@cache
def _bands() -> dict[str, Band]:
    return {
        row["quantity"]: Band(
            float(row["low"]), float(row["best"]), float(row["high"]), row["unit"], int(row["n"]), row["source"]
        )
        for row in _rows("efficiency.csv")
    }


@cache
def _kernels() -> dict[str, int]:
    return {row["part"]: int(row["kernels"]) for row in _rows("kernels.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(files("planner.serving").joinpath(name).read_text("utf-8").splitlines()))
