"""The cards and the RAM of a machine; several cards in one word: "2x3090", "4090,3090"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final

from annotated_types import Ge, Le

from planner.contract.card import Card
from planner.contract.inputs import option
from planner.contract.reading import read_memory
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, find_gpu

_COUNTED: Final = re.compile(r"(\d{1,3})\s*[x*]\s*(.+)", re.ASCII)
_MOST: Final = 16  # GGML_CUDA_MAX_DEVICES


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Card):
    """Inputs of programs that spread a model over the cards and the RAM of one machine.

    Args:
        gpus: all cards where they are several: "2x3090", "4090,3090".
        host_memory_bytes: RAM of the machine.
    """

    gpus: Annotated[
        str | None, option("Cards where they are several: 2x3090, or 4090,3090.", "--gpus", panel="Card", ours=True)
    ] = None
    host_memory_bytes: Annotated[
        int | None,
        Ge(1),
        Le(1 << 46),
        option("RAM of the machine.", "--host-memory", panel="Card", unit="bytes", read=read_memory, ours=True),
    ] = None


@cache
def cards_of(text: str) -> tuple[Gpu, ...]:
    """Every card that the text names, in order.

    Raises:
        UnknownGpu: no card of such a name.
        UsageError: more than llama.cpp uses.
    """
    found: list[Gpu] = []
    for part in text.split(","):
        counted = _COUNTED.fullmatch(part.strip())
        count, name = (int(counted[1]), counted[2]) if counted else (1, part.strip())
        if not name:
            continue
        found += [find_gpu(name)] * min(count, _MOST + 1)
    if not 0 < len(found) <= _MOST:
        raise UsageError(f"--gpus {text[:40]!r}: 1 to {_MOST} cards are possible", field="gpus")
    return tuple(found)
