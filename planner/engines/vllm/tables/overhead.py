"""Memory that no formula gives: driver context, communicators, graphs, library workspaces.

Everything is a row of `overhead.csv`, with the versions and cards it was read on and how many readings there were.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from planner.errors import UsageError
from planner.units import MIB


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes as low, best and high, with where they come from and how many readings stand behind them.

    `per` says what the figure is for when it is not one thing: 102 CUDA graphs, say.
    """

    low: int
    best: int
    high: int
    n: int
    source: str
    per: int = 1


@cache
def overhead(quantity: str, version: tuple[int, ...], gpu_class: str, topology: str) -> Measured:
    """The row of the table for a quantity; the first that names this card class wins over "any".

    Args:
        quantity: "non_torch", "nccl_outside", "graph_base", "graph_layer", ... (first column).
        version: engine version as numbers.
        gpu_class: "hopper", "ampere_nvlink", "unified", ...; falls back to the part before "_", then to "any".
        topology: "tp1", "tpn" or "pp"; rows for "any" match all.

    Raises:
        UsageError: the table has no such row.
    """
    for wanted_class in (gpu_class, gpu_class.partition("_")[0], "any"):
        for row in _rows():
            if (
                row["quantity"] == quantity
                and row["gpu_class"] == wanted_class
                and row["topology"] in (topology, "any")
                and _numbers(row["first_version"]) <= version
                and version[: len(_numbers(row["last_version"]))] <= _numbers(row["last_version"])
            ):
                low, best, high = (round(float(row[f"{side}_mib"]) * MIB) for side in ("low", "best", "high"))
                return Measured(low, best, high, int(row["n"]), row["source"], int(row["per"]))
    release = ".".join(map(str, version))
    raise UsageError(
        f"no figure for {quantity} of engine version {release} as asked: leave --model-runner to the version, or take"
        " another --engine-version",
        field="engine_version",
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = files("planner.engines.vllm.tables").joinpath("overhead.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
