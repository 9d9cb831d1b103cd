"""Cards as people write them: "2x3090", "8xH100", "4090,L40S", "H100 1g.10gb", "p5.48xlarge", a listing, "auto"."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Final

from planner.errors import UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu
from planner.units import GIB

_COUNTED: Final = re.compile(r"\s*(\d{1,4})\s*[xX*×]\s*(\S.*)", re.DOTALL)
_SLICE: Final = re.compile(r"(.*?)[\s-]*(?:MIG\s*)?(\d)g\.(\d{1,3})gb(?:\+me)?\s*", re.IGNORECASE)
_MOST_CARDS: Final = 4096
_MOST_KINDS: Final = 64
_SLICES: Final = 7


@dataclass(frozen=True, slots=True)
class Cards:
    """Equal cards."""

    gpu: Gpu
    count: int


def parse_cards(text: str) -> tuple[Cards, ...]:
    """Every card that a text names, with how many of each; kinds are separated by commas.

    Raises:
        UnknownGpu: a part that names no card, or several; too many.
    """
    if text.strip().lower() == "auto":
        return cards_of_machine()
    parts = [part for part in text.split(",") if part.strip()]
    if not parts or len(parts) > _MOST_KINDS:
        raise UnknownGpu(f"--gpu is {text[:40]!r}; name a card, such as 4090 or 2x3090", field="gpu")
    return tuple(_cards(part) for part in parts)


def parse_equal_cards(text: str, *, memory_bytes: int | None = None) -> Cards:
    """Equal cards that one engine spreads a model over.

    Args:
        memory_bytes: what the driver reports of one; settles which of several cards is meant.

    Raises:
        UnknownGpu: as `parse_cards`; cards of several kinds.
    """
    if memory_bytes is not None:
        counted = _COUNTED.fullmatch(text)
        count, name = (int(counted[1]), counted[2]) if counted else (1, text)
        return Cards(find_gpu(name.strip(), memory_bytes=memory_bytes), count)
    found = merged(parse_cards(text))
    if len(found) > 1:
        named = ", ".join(f"{cards.count} x {cards.gpu.name}" for cards in found)
        raise UnknownGpu(
            f"--gpu names unequal cards ({named}): this engine shares a model over equal ones only; plan one kind at a"
            " time, or --engine llama.cpp, which splits by --tensor-split",
            field="gpu",
        )
    return found[0]


def merged(cards: Iterable[Cards]) -> tuple[Cards, ...]:
    """Cards of one kind counted together, in order of first appearance."""
    counts: dict[str, Cards] = {}
    for one in cards:
        before = counts.get(one.gpu.id)
        counts[one.gpu.id] = Cards(one.gpu, one.count + (before.count if before else 0))
    return tuple(counts.values())


def _cards(text: str) -> Cards:
    count, name = 1, text
    found = _COUNTED.fullmatch(text)
    if found is not None:
        count, name = int(found[1]), found[2]
        if not 1 <= count <= _MOST_CARDS:
            raise UnknownGpu(f"--gpu {text.strip()[:40]!r}: {count} cards; expected 1 to {_MOST_CARDS}", field="gpu")
    machine = _machines().get(name.strip().lower())
    if machine is not None:
        return Cards(find_gpu(machine["card"]), count * int(machine["gpus"]))
    sliced = _SLICE.fullmatch(name)
    if sliced is not None and sliced[1].strip():
        return Cards(_slice(find_gpu(sliced[1]), int(sliced[2]), int(sliced[3])), count)
    return Cards(find_gpu(name.strip()), count)


def _slice(gpu: Gpu, compute: int, memory_gb: int) -> Gpu:
    """A MIG instance: the memory that its name says, its share of multiprocessors and of bandwidth.

    Source: NVIDIA MIG User Guide, supported profiles (fraction of SMs, fraction of memory). The name rounds the memory
    up by what the driver keeps, so that it is taken as an upper bound: assumed.
    """
    if gpu.capability is None or gpu.capability < (8, 0) or not 1 <= compute <= _SLICES:
        raise UnknownGpu(f"--gpu: {gpu.name} has no MIG instances", field="gpu")
    whole = gpu.total_memory_bytes
    size = min(memory_gb * GIB, whole)
    if compute == _SLICES:
        size = whole
    share = size / whole

    def part(rate: int | None, fraction: float) -> int | None:
        return None if rate is None else int(rate * fraction)

    return replace(
        gpu,
        id=f"{gpu.id}-{compute}g.{memory_gb}gb",
        name=f"{gpu.name} MIG {compute}g.{memory_gb}gb",
        aliases=(),
        sm_count=part(gpu.sm_count, compute / _SLICES),
        reported_memory_bytes=size,
        min_memory_bytes=int(size * 0.95),
        max_memory_bytes=size,
        nvidia_smi_bytes=None,
        bandwidth_bytes_per_second=part(gpu.bandwidth_bytes_per_second, share),
        fp16_flops=part(gpu.fp16_flops, compute / _SLICES),
        fp8_flops=part(gpu.fp8_flops, compute / _SLICES),
        int8_ops=part(gpu.int8_ops, compute / _SLICES),
        fp4_flops=part(gpu.fp4_flops, compute / _SLICES),
        interconnect="",
        evidence="assumed",
        notes=(f"a MIG instance of {memory_gb} GB: its memory is taken from its name; --gpu-memory states it",),
    )


@cache
def _machines() -> dict[str, dict[str, str]]:
    """Cloud instance types by name in small letters (machines.csv)."""
    text = files("planner.hardware").joinpath("machines.csv").read_text("utf-8")
    return {row["name"].lower(): row for row in csv.DictReader(text.splitlines())}


def cards_of_machine() -> tuple[Cards, ...]:
    """The cards of this machine, as its driver lists them.

    Raises:
        UnknownGpu: no driver answers, or it lists no card that is known.
    """
    from planner.hardware.detect import detect_gpus  # runs nvidia-smi: only "auto" asks

    found = detect_gpus()
    if not found:
        raise UnknownGpu("--gpu auto: no driver of this machine lists a card; name one", field="gpu")
    return merged(Cards(one.gpu, 1) for one in found)


def cards_of_listing(text: str) -> tuple[Cards, ...]:
    """The cards of a pasted `nvidia-smi` (its query or its table) or `rocm-smi` listing.

    Raises:
        UnknownGpu: it lists no card that is known.
    """
    found = []
    for line in text.splitlines()[:2000]:
        name = _listed_name(line)
        if name is None:
            continue
        try:
            found.append(Cards(find_gpu(name), 1))
        except UnknownGpu:
            continue
    if not found:
        raise UnknownGpu("--gpu -: the listing names no card that is known here", field="gpu")
    return merged(found)


_TABLE_ROW: Final = re.compile(r"\|\s+\d+\s+((?:NVIDIA|Tesla|GeForce|Quadro|RTX|A\d|H\d|L\d)[^|]*?)\s+(?:On|Off|N/A)\b")
_LISTED: Final = re.compile(r"GPU\s*\[?\d+\]?\s*:\s*(?:Card [Ss]eries:\s*)?([^(]{3,80})")


def _listed_name(line: str) -> str | None:
    row = _TABLE_ROW.search(line) or _LISTED.search(line)
    if row is not None:
        return row[1].strip()
    parts = [part.strip() for part in line.split(",")]
    names = [part for part in parts if re.match(r"(NVIDIA|AMD|Tesla|GeForce|Quadro)\b", part)]
    return names[0] if names and len(parts) > 1 else None
