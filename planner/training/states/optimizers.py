"""Optimizers: the state each keeps for a parameter, and what its step needs besides, from `optimizers.csv`.

states     param: like the parameter; fp32; int8: a byte and an fp32 absmax per 256; int4: half and a scale per 128;
           factored: fp32 means of rows and columns; muon, galore, apollo: see below
step       foreach: one temporary like every parameter; largest:n: n fp32 temporaries of the largest;
           adafactor: see states.py; none
All results in bytes of one parameter tensor.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import prod
from typing import Final

from planner.errors import UsageError
from planner.training.recipe import near

FP32: Final = 4
_SMALLEST_8BIT: Final = 4096  # elements; bitsandbytes min_8bit_size, torchao _new_buffer
_SMALLEST_PAGED: Final = 100_000  # elements; bitsandbytes get_state_buffer
_CODE_BOOK: Final = 256 * FP32  # bitsandbytes: one quantisation map for each moment, shared by all tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One row of the table."""

    id: str
    states: tuple[str, ...]
    step: str
    paged: bool
    source: str

    def state_tensors(self, shape: tuple[int, ...], width: int, rank: int = 128) -> tuple[int, ...]:
        """Bytes of every state tensor of a parameter of this shape and element width."""
        numel = prod(shape)
        found: list[int] = []
        for kind in self.states:
            found += _state(kind, shape, numel, width, rank)
        return tuple(found)

    def pages(self, numel: int) -> bool:
        """Its states for so many elements are in unified memory."""
        return self.paged and numel >= _SMALLEST_PAGED


def _state(kind: str, shape: tuple[int, ...], numel: int, width: int, rank: int) -> tuple[int, ...]:
    if kind == "param":
        return (numel * width,)
    if kind == "fp32":
        return (numel * FP32,)
    if kind == "int8":
        if numel < _SMALLEST_8BIT:
            return (numel * FP32,)
        return (numel, -(-numel // 256) * FP32)
    if kind == "int4":
        if numel < _SMALLEST_8BIT or numel % 128:
            return (numel * width,)
        return (numel // 2, numel // 128 * FP32)
    if kind == "factored":
        if len(shape) < 2:
            return (numel * FP32,)
        return (numel // shape[-1] * FP32, numel // shape[-2] * FP32)
    matrix = len(shape) == 2
    if kind == "muon":
        return (numel * width,) if matrix else (numel * width, numel * width)
    if kind.startswith(("galore", "apollo")):
        return _low_rank(kind, shape, numel, width, rank)
    raise AssertionError(kind)


def _low_rank(kind: str, shape: tuple[int, ...], numel: int, width: int, rank: int) -> tuple[int, ...]:
    """States on the longer side and `rank`; GaLore's projector on the shorter. Others are as without a rank."""
    inner = {"galore8": "int8", "galore_factored": "factored"}.get(kind, "param")
    moments = 1 if inner == "factored" else 2
    if len(shape) != 2 or min(shape) <= rank:
        return _state(inner, shape, numel, width, rank) * moments
    states = _state(inner, (max(shape), rank), max(shape) * rank, width, rank) * moments
    return states if kind == "apollo" else (*states, min(shape) * rank * width)


@cache
def _rows() -> dict[str, Optimizer]:
    text = files("planner.training").joinpath("states/optimizers.csv").read_text("utf-8")
    return {
        row["id"]: Optimizer(
            id=row["id"],
            states=tuple(part for part in row["states"].split(";") if part),
            step=row["step"],
            paged=bool(row["paged"]),
            source=row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def optimizer(name: str) -> Optimizer:
    """The optimizer of that name.

    Raises:
        UsageError: no such row; says the nearest.
    """
    found = _rows().get(name)
    if found is None:
        raise UsageError(f"--optim {name!r} is not known{near(name, tuple(_rows()))}", field="optim")
    if found.step == "refused":
        raise UsageError(f"--optim {name} is not modelled: it is {found.source}", field="optim")
    return found
