"""The CUDA (or HIP) context: device memory that a process holds before its first tensor.

It follows the number of SMs and of loaded kernels, hardly the size of the memory. The readings are in
`contexts.csv`, first matching row counts: `ids` are patterns over `Gpu.id`, otherwise the architecture and the least
number of SMs decide. low and high are the smallest and the largest reading of the class; where there is one reading
only, 100 MiB to either side, a little more than the spread of the many readings of one card (H100: 522 to 614).
`measured` means read on this very card, `assumed` taken from others of its class.
All readings are for lazy loading of kernels, the default since CUDA 11.7. Every process on a card pays anew.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources

from planner.hardware.gpus import Evidence, Gpu
from planner.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBytes:
    """Bytes of one process's context on a card, and the number of readings behind them."""

    low_bytes: int
    best_bytes: int
    high_bytes: int
    evidence: Evidence
    source: str
    count: int


@lru_cache(maxsize=512)  # every plan asks, of few cards
def cuda_context(gpu: Gpu) -> ContextBytes:
    """The context of one process on this card, in bytes; for a card without any reading a wide range."""
    for row in _rows():
        if _matches(row, gpu):
            return ContextBytes(
                low_bytes=int(row["low_mib"]) * MIB,
                best_bytes=int(row["best_mib"]) * MIB,
                high_bytes=int(row["high_mib"]) * MIB,
                evidence="measured" if row["evidence"] == "measured" else "assumed",
                source=row["source"],
                count=int(row["count"]),
            )
    raise AssertionError("contexts.csv ends with a row for every card")


def _matches(row: dict[str, str], gpu: Gpu) -> bool:
    if row["ids"]:
        return any(fnmatchcase(gpu.id, pattern) for pattern in row["ids"].split(";"))
    if gpu.architecture not in row["architectures"].split(";"):
        return False
    return not row["sm_min"] or (gpu.sm_count is not None and gpu.sm_count >= int(row["sm_min"]))


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = resources.files("planner.hardware").joinpath("contexts.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
