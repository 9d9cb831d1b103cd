"""Free memory of a card when SGLang starts to load weights ("Load weight begin. avail mem").

    total - CUDA context - communicators (NCCL, custom all-reduce) - what others hold

With several cards the poorest counts: the engine takes the minimum over all ranks. On unified memory the machine's own
use is among the others.

Source: SGLang 0.5.23 model_executor/model_runner.py init_torch_distributed, get_available_gpu_memory(distributed=True);
readings in `tables/communication.csv`.
"""

from __future__ import annotations

import csv
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from planner.contract.component import Component
from planner.hardware.gpus import Gpu
from planner.hardware.links import link_of
from planner.units import MIB, format_size

# What the machine itself takes of memory that it shares: 105 to 112 GiB of 119.7 were free in starts on GB10.
_UNIFIED_OTHERS_MIB: Final = (7600, 9700, 15000)


def link_class(gpu: Gpu) -> str:
    """The row of the table that a card's link belongs to."""
    if gpu.unified_memory:
        return "unified"
    if gpu.vendor == "AMD":
        return "amd"
    link = link_of(gpu)
    if link is None or link.kind == "pcie":
        return "pcie"
    family = gpu.architecture.lower()
    return family if family in ("hopper", "blackwell") else "nvlink"


@lru_cache(maxsize=512)
def communicators(gpu: Gpu, cards: int) -> Component:
    """What a process group of this many cards takes on each."""
    row = _row("one" if cards == 1 else "many", "any" if cards == 1 else link_class(gpu))
    low, best, high = (int(row[f"{side}_mib"]) * MIB for side in ("low", "best", "high"))
    return Component(
        name="communication_buffers",
        low=low,
        best=best,
        high=high,
        evidence="measured",
        formula=f"process groups over {cards} card{'s' if cards > 1 else ''}: {format_size(best)} (n={row['count']})",
        source=row["source"],
    )


def others(gpu: Gpu, already_used_bytes: int) -> Component | None:
    """What other processes hold; on unified memory the machine itself, unless the user says how much it is."""
    if gpu.unified_memory and not already_used_bytes:
        low, best, high = (size * MIB for size in _UNIFIED_OTHERS_MIB)
        return Component(
            name="other_processes",
            low=low,
            best=best,
            high=high,
            evidence="measured",
            formula=f"the machine's own use of shared memory: {format_size(best)} (n=8)",
            source="SGLang starts on GB10: 105 to 112 GiB of 119.7 free before loading",
        )
    if not already_used_bytes:
        return None
    return Component(
        name="other_processes",
        low=already_used_bytes,
        best=already_used_bytes,
        high=already_used_bytes,
        evidence="exact",
        formula="given by the user",
        source="--already-used",
    )


def _row(cards: str, link: str) -> dict[str, str]:
    return next(row for row in _rows() if row["cards"] == cards and row["link"] in (link, "any"))


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = files("planner.engines.sglang.tables").joinpath("communication.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
