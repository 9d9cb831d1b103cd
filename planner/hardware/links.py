"""How fast cards of one kind talk to each other: NVLink or its like where the table lists it, else PCIe."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from planner.hardware.gpus import Gpu

_FAST: Final = re.compile(r"(?:NVLink|Infinity Fabric)[^;]*?([0-9][0-9.]*) GB/s")
_PCIE: Final = re.compile(r"PCIe ([0-9.]+) x([0-9]+)")


@dataclass(frozen=True, slots=True)
class Link:
    """The link between two cards: bytes a second in one direction, and its kind ("nvlink" or "pcie")."""

    bytes_per_second: int
    kind: str


def link_of(gpu: Gpu) -> Link | None:
    """The fastest listed link of a card; None where the table says nothing.

    A vendor's GB/s counts both directions of all links together: one direction is half.
    """
    fast = _FAST.search(gpu.interconnect)
    if fast is not None:
        return Link(round(float(fast[1]) * 10**9 / 2), "nvlink")
    slow = _PCIE.search(gpu.interconnect)
    if slow is None or slow[1] not in _lanes():
        return None
    return Link(_lanes()[slow[1]] * int(slow[2]), "pcie")


@cache
def _lanes() -> dict[str, int]:
    text = files("planner.hardware").joinpath("links.csv").read_text("utf-8")
    return {row["generation"]: int(row["bytes_per_second_lane"]) for row in csv.DictReader(text.splitlines())}
