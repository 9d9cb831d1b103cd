"""How cards of one kind talk to each other: NVLink or its like where it is part of the card, else PCIe.

A bridge is a part that is bought apart: a card that can have one is taken without, unless the user says it is fitted.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from planner.errors import UsageError
from planner.hardware.gpus import Gpu
from planner.units import GIB

# How one process reaches another card's memory: "peer" is PCIe with peer access, "none" goes through host memory.
Reach = Literal["nvlink", "xgmi", "peer", "none"]

_FAST: Final = re.compile(r"(?:NVLink(?!-)|Infinity Fabric)( [0-9]+ bridge| bridge)?[^;]*?([0-9][0-9.]*) GB/s")
_LINKED_FROM: Final = 70 * GIB
_PCIE: Final = re.compile(r"PCIe ([0-9.]+) x([0-9]+)")


@dataclass(frozen=True, slots=True)
class Link:
    """The link between two cards: bytes a second in one direction, and its kind ("nvlink" or "pcie")."""

    bytes_per_second: int
    kind: str


def link_of(gpu: Gpu, interconnect: str = "auto") -> Link | None:
    """The link between two such cards; None where the table says nothing.

    A vendor's GB/s counts both directions of all links together: one direction is half.

    Args:
        interconnect: "auto", "nvlink", "pcie" or "none"; "nvlink" takes an optional bridge as fitted, the last two
            leave NVLink out.

    Raises:
        UsageError: NVLink is asked of a card that cannot have it.
    """
    fast = _fast(gpu, interconnect)
    if fast is not None:
        return Link(round(float(fast[2]) * 10**9 / 2), "nvlink")
    slow = _PCIE.search(gpu.interconnect)
    if slow is None or slow[1] not in _lanes():
        return None
    return Link(_lanes()[slow[1]] * int(slow[2]), "pcie")


def reach_of(gpu: Gpu | None, interconnect: str = "auto") -> Reach:
    """How a process on one such card reaches the memory of another.

    GeForce cards since the RTX 20 have no peer access over PCIe (NVIDIA's driver; vLLM then does without its own
    all-reduce). A card of which only the memory is known is taken for one with NVLink from 70 GiB on.

    Raises:
        UsageError: NVLink is asked of a card that cannot have it.
    """
    if gpu is None or gpu.id == "unnamed":
        large = gpu is not None and (gpu.reported_memory_bytes or 0) >= _LINKED_FROM
        return "nvlink" if interconnect == "nvlink" or (large and interconnect == "auto") else "none"
    if _fast(gpu, interconnect) is not None:
        return "xgmi" if gpu.vendor == "AMD" else "nvlink"
    if interconnect == "none" or "GeForce" in gpu.name or "TITAN RTX" in gpu.name:
        return "none"
    return "peer"


def _fast(gpu: Gpu, interconnect: str) -> re.Match[str] | None:
    if interconnect in ("pcie", "none"):
        return None
    found = _FAST.search(gpu.interconnect)
    if interconnect == "nvlink" and found is None:
        raise UsageError(f"--interconnect nvlink: {gpu.name} has no NVLink", field="interconnect")
    fitted = found is not None and (not found[1] or interconnect == "nvlink")
    return found if fitted else None


@cache
def _lanes() -> dict[str, int]:
    text = files("planner.hardware").joinpath("links.csv").read_text("utf-8")
    return {row["generation"]: int(row["bytes_per_second_lane"]) for row in csv.DictReader(text.splitlines())}
