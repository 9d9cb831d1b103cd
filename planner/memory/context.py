"""The driver's context of one process, as a term of a plan."""

from __future__ import annotations

from functools import lru_cache

from planner.contract.component import Component
from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import Gpu
from planner.units import format_size


@lru_cache(maxsize=512)
def context_component(gpu: Gpu) -> Component:
    """The context and what the driver loads beside it."""
    found = cuda_context(gpu)
    return Component(
        name="context",
        low=found.low_bytes,
        best=found.best_bytes,
        high=found.high_bytes,
        evidence=found.evidence,
        formula=f"CUDA context of one process: {format_size(found.best_bytes)} (n={found.count})",
        source=found.source,
    )
