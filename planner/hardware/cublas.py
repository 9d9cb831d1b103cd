"""The workspace that torch gives cuBLAS once a process multiplies matrices on a card.

Source: torch ATen/cuda/CUDABlas.cpp getChosenWorkspaceSize (2.4 to 2.13): 4096 x 8 KiB from compute capability 9.0 on,
else ":4096:2:16:8", which is 2 x 4096 KiB + 8 x 16 KiB. On ROCm 32 MiB, 128 MiB on gfx94x and gfx95x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.hardware.gpus import Gpu
from planner.units import KIB, MIB

_SOURCE: Final = "torch ATen/cuda/CUDABlas.cpp getChosenWorkspaceSize"
_LARGE_FROM: Final = (9, 0)
_LARGE_ON_ROCM: Final = ("gfx94", "gfx95")


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes, and the arithmetic that gave them."""

    size_bytes: int
    formula: str
    source: str


def cublas_workspace(gpu: Gpu | None) -> Workspace:
    """The workspace of one handle on this card, in bytes; a card that is not known has the small one."""
    if gpu is not None and gpu.vendor == "AMD":
        large = (gpu.compute_capability or "").startswith(_LARGE_ON_ROCM)
        return Workspace((128 if large else 32) * MIB, "128 MiB" if large else "32 MiB", _SOURCE)
    if gpu is not None and gpu.capability is not None and gpu.capability >= _LARGE_FROM:
        return Workspace(4096 * 8 * KIB, "4,096 x 8 KiB", _SOURCE)
    return Workspace(2 * 4096 * KIB + 8 * 16 * KIB, "2 x 4,096 KiB + 8 x 16 KiB", _SOURCE)
