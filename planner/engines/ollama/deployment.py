"""What Ollama is asked to do: its parameters and environment variables, declared once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.contract.reading import read_memory, read_switch, read_tokens, read_whole
from planner.engines.llama_cpp.cards import Machine, cards_of
from planner.engines.ollama.releases import NEWEST
from planner.errors import UsageError
from planner.hardware.gpus import Gpu

OLLAMA: Final = "Ollama"
_PARAMETER: Final = re.compile(r"\s*PARAMETER\s+(num_ctx|num_batch|num_gpu)\s+(\d{1,9})\s*", re.IGNORECASE | re.ASCII)
_LARGEST_MODELFILE: Final = 1 << 20


def read_modelfile(text: str, name: str) -> dict[str, int]:
    """num_ctx, num_batch and num_gpu of a Modelfile.

    Raises:
        UsageError: no such file, or far too large for one.
    """
    path = Path(text).expanduser()
    try:
        if path.stat().st_size > _LARGEST_MODELFILE:
            raise UsageError(f"{name} {text[:60]}: too large for a Modelfile", field="modelfile")
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"{name} {text[:60]}: cannot be read ({error.strerror})", field="modelfile") from None
    found = (_PARAMETER.fullmatch(line) for line in lines)
    return {match[1].lower(): int(match[2]) for match in found if match}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Machine):
    """The inputs of a server, under the names of Ollama's parameters; None means the release's default."""

    engine_version: Annotated[str, option("Release (0.17.0) or month.", panel=OLLAMA, ours=True)] = NEWEST
    quantization: Annotated[
        str | None, option("llama.cpp's mix of the weights.", "--quantization", "-q", panel=OLLAMA, ours=True)
    ] = None
    modelfile: Annotated[
        str | None, option("Modelfile whose PARAMETER lines count.", "--modelfile", panel=OLLAMA, ours=True)
    ] = None
    num_ctx: Annotated[
        int | None,
        Ge(1),
        Le(1 << 27),
        option(
            "Context of a slot; by VRAM.",
            "--num-ctx",
            panel=OLLAMA,
            unit="tokens",
            read=read_tokens,
            environment={"OLLAMA_CONTEXT_LENGTH": read_tokens},
            common=True,
        ),
    ] = None
    num_parallel: Annotated[
        int | None,
        Ge(0),
        Le(256),
        option("Slots.", "--num-parallel", panel=OLLAMA, environment={"OLLAMA_NUM_PARALLEL": read_whole}, common=True),
    ] = None
    num_batch: Annotated[
        int | None, Ge(1), Le(1 << 16), option("Tokens computed at once.", "--num-batch", panel=OLLAMA)
    ] = None
    num_gpu: Annotated[
        int | None, Ge(-1), Le(4096), option("Layers on cards, the output layer counted.", "--num-gpu", panel=OLLAMA)
    ] = None
    kv_cache_type: Annotated[
        str,
        option(
            "Type of the cache.",
            "--kv-cache-type",
            panel=OLLAMA,
            choices=("f16", "q8_0", "q4_0"),
            environment={"OLLAMA_KV_CACHE_TYPE": lambda text, _: text},
            common=True,
        ),
    ] = "f16"
    flash_attention: Annotated[
        bool | None,
        option(
            "Fused attention.",
            "--flash-attention",
            panel=OLLAMA,
            environment={"OLLAMA_FLASH_ATTENTION": read_switch},
            common=True,
        ),
    ] = None
    gpu_overhead_bytes: Annotated[
        int,
        Ge(0),
        Le(1 << 44),
        option(
            "Memory of each card that is left alone.",
            "--gpu-overhead",
            panel=OLLAMA,
            unit="bytes",
            read=read_memory,
            environment={"OLLAMA_GPU_OVERHEAD": read_memory},
        ),
    ] = 0
    sched_spread: Annotated[
        bool,
        option(
            "Always use all cards.", "--sched-spread", panel=OLLAMA, environment={"OLLAMA_SCHED_SPREAD": read_switch}
        ),
    ] = False

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """As `Machine.settle`; a Modelfile fills what is not given."""
        found = dict(given)
        text = found.get("gpus") or found.get("gpu")
        if isinstance(text, str):
            listed = cards_of(text)
            if len(listed) > 1:
                found["gpus"], found["gpu"] = text, listed[0].id
        if found.get("modelfile"):
            for name, value in read_modelfile(found["modelfile"], "--modelfile").items():
                found.setdefault(name, value)
        return Machine.settle(found)

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """Every card."""
        if self.gpus is not None:
            return cards_of(self.gpus)
        return (self.gpu,) if self.gpu is not None else ()
