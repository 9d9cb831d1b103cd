"""The workspace that torch gives cuBLAS once a process multiplies matrices on a card.

Source: torch ATen/cuda/CUDABlas.cpp getChosenWorkspaceSize (2.4 to 2.13): 4096 x 8 KiB from compute capability 9.0 on,
else ":4096:2:16:8", which is 2 x 4096 KiB + 8 x 16 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.hardware.gpus import Gpu
from planner.units import KIB

_SOURCE: Final = "torch ATen/cuda/CUDABlas.cpp getChosenWorkspaceSize"
_LARGE_FROM: Final = (9, 0)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes, and the arithmetic that gave them."""

    size_bytes: int
    formula: str
    source: str


def cublas_workspace(gpu: Gpu) -> Workspace:
    """The workspace of one handle on this card, in bytes."""
    if gpu.capability is not None and gpu.capability >= _LARGE_FROM:
        return Workspace(4096 * 8 * KIB, "4,096 x 8 KiB", _SOURCE)
    return Workspace(2 * 4096 * KIB + 8 * 16 * KIB, "2 x 4,096 KiB + 8 x 16 KiB", _SOURCE)
