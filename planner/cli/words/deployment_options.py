"""The options that describe a serving deployment, spelled as vLLM spells them, and how they become one."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.contract.reading import read_memory
from planner.engines.vllm.tables.profile import DEFAULT_VERSION
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu

GPU = "Card and engine"
ENGINE = "Engine options (as vLLM spells them)"
WORKLOAD = "Workload"

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A bundled name, a folder or config.json, a weights file, or a Hub id.")
]
GpuOption = Annotated[str | None, typer.Option("--gpu", help="Card: 4090, 'a100 80gb', H100, ...", rich_help_panel=GPU)]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option("--gpu-memory", help="What the driver reports (79.19GiB); overrides the table.", rich_help_panel=GPU),
]
EngineVersionOption = Annotated[
    str, typer.Option("--engine-version", help="vLLM version, 0.4 to 0.33.", rich_help_panel=GPU)
]


def find_card(gpu: str | None, gpu_memory: str | None) -> tuple[Gpu, int]:
    """The card and its memory in bytes, from --gpu and --gpu-memory.

    Raises:
        UnknownGpu: no card of that name, or several with different memory.
        UsageError: neither option given, or a size that is none.
    """
    size = read_memory(gpu_memory, "--gpu-memory") if gpu_memory is not None else None
    if size == 0:
        raise UsageError("--gpu-memory is 0; give what the driver reports, such as 79.19GiB", field="gpu_memory")
    if gpu is None:
        if size is None:
            raise UsageError("no card: pass --gpu NAME, or --gpu-memory 79.19GiB for an unnamed one", field="gpu")
        return unnamed_gpu(size), size
    card = find_gpu(gpu, memory_bytes=size)
    return card, card.total_memory_bytes


__all__ = [
    "DEFAULT_VERSION",
    "EngineVersionOption",
    "GpuMemoryOption",
    "GpuOption",
    "ModelArgument",
    "find_card",
]
