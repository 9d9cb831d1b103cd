"""The card of a question, and what is true of it whatever runs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.contract.reading import read_memory
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, unnamed_gpu
from planner.hardware.spelled import parse_equal_cards

CARD: Final = "Card"
_MOST_BYTES: Final = 1 << 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Inputs that every engine shares.

    Args:
        gpu_memory_bytes: what the driver reports; None takes it from `gpu`.
        already_used_bytes: what other processes hold on each card.
    """

    gpu: Annotated[
        Gpu | None,
        option(
            "Card: 4090, 'a100 80gb', H100, ...", "--gpu", panel=CARD, read=lambda text, _: text, ours=True, common=True
        ),
    ] = None
    gpu_memory_bytes: Annotated[
        int | None,
        Ge(1),
        Le(_MOST_BYTES),
        option(
            "What the driver reports (79.19GiB); overrides the table.",
            "--gpu-memory",
            panel=CARD,
            unit="bytes",
            read=read_memory,
            ours=True,
        ),
    ] = None
    already_used_bytes: Annotated[
        int,
        Ge(0),
        Le(_MOST_BYTES),
        option(
            "Memory that other processes hold on each card.",
            "--already-used",
            panel=CARD,
            unit="bytes",
            read=read_memory,
            ours=True,
        ),
    ] = 0

    @property
    def total_bytes(self) -> int:
        """Memory of one card, as stated or as its driver reports it.

        Raises:
            UsageError: no card was given.
        """
        total = self.gpu_memory_bytes or (self.gpu.total_memory_bytes if self.gpu else 0)
        if not 0 < total <= _MOST_BYTES:
            raise UsageError("no card: pass --gpu NAME or --gpu-memory 79.19GiB", field="gpu")
        return total

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs with the card that `--gpu` and `--gpu-memory` mean together.

        Raises:
            UnknownGpu: no card of that name, or several with different memory.
            UsageError: neither option given, or a size that is none.
        """
        found, name, size = dict(given), given.get("gpu"), given.get("gpu_memory_bytes")
        if size == 0:
            raise UsageError("--gpu-memory is 0; give what the driver reports, such as 79.19GiB", field="gpu_memory")
        if isinstance(name, str):
            found["gpu"] = card = parse_equal_cards(name, memory_bytes=size).gpu
            found["gpu_memory_bytes"] = card.total_memory_bytes
        elif name is None and size is not None:
            found["gpu"] = unnamed_gpu(size)
        elif name is None:
            raise UsageError("no card: pass --gpu NAME, or --gpu-memory 79.19GiB for an unnamed one", field="gpu")
        return found
