"""The options that describe a serving deployment, spelled as vLLM spells them, and how they become one."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from planner.cli.pasted import memory_size
from planner.engines.vllm.tables.profile import DEFAULT_VERSION
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.units import GIB, parse_size

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


def allows_long_requests() -> bool:
    """The environment has what vLLM reads before it refuses requests beyond the model's positions (vllm/envs.py)."""
    return os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").strip().lower() in ("1", "true")


def find_card(gpu: str | None, gpu_memory: str | None) -> tuple[Gpu, int]:
    """The card and its memory in bytes, from --gpu and --gpu-memory.

    Raises:
        UnknownGpu: no card of that name, or several with different memory.
        UsageError: neither option given, or a size that is none.
    """
    size = memory_size(gpu_memory, "--gpu-memory") if gpu_memory is not None else None
    if size == 0:
        raise UsageError("--gpu-memory is 0; give what the driver reports, such as 79.19GiB", field="gpu_memory")
    if gpu is None:
        if size is None:
            raise UsageError("no card: pass --gpu NAME, or --gpu-memory 79.19GiB for an unnamed one", field="gpu")
        return unnamed_gpu(size), size
    card = find_gpu(gpu, memory_bytes=size)
    return card, card.total_memory_bytes


def gib_option(text: str | None, option: str) -> int | None:
    """Bytes of an engine option that is a plain number of GiB (--swap-space 16, --cpu-offload-gb 10).

    Raises:
        UsageError: not a number, or negative.
    """
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return parse_size(text, option=option)
    if not 0 <= value <= 1 << 20:
        raise UsageError(f"{option} is {text}; expected GiB from 0", field=option)
    return round(value * GIB)


__all__ = [
    "DEFAULT_VERSION",
    "EngineVersionOption",
    "GpuMemoryOption",
    "GpuOption",
    "ModelArgument",
    "allows_long_requests",
    "find_card",
    "gib_option",
]


def token_count(text: str | None, option: str = "--max-model-len") -> int | None:
    """A length in tokens: 8192, 8k (8 x 1000 in vLLM's human-readable form), 8K (8 x 1024), or -1 for auto-fit."""
    if text is None:
        return None
    lowered = text.strip()
    scale = {"k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}.get(lowered[-1:], 1)
    digits = lowered[:-1] if scale != 1 else lowered
    if lowered in ("-1", "auto"):
        return -1
    if not digits.isdecimal() or not digits.isascii() or len(digits) > 12:
        raise UsageError(
            f"{option} is {text[:40]!r}; expected a number of tokens such as 8192 or 32K",
            field=option.lstrip("-").replace("-", "_"),
        )
    return int(digits) * scale
