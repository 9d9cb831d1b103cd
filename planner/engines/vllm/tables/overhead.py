"""Memory that no formula gives: driver context, communicators, graphs, library workspaces.

Everything is a row of `overhead.csv`, with the versions and cards it was read on and how many readings there were.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a reading of the table holds for.

    Args:
        version: engine version as numbers.
        card: the card's id ("gh200-96gb"), its architecture ("Hopper"), "unified" for shared memory; all that apply.
        topology: "tp1", "tpn" or "pp".
        link: how one GPU reaches another's memory: "nvlink", "xgmi", "peer" (PCIe) or "none".
        gpus: that work together on one model.
        runner: "v0", "v1" or "v2".
        graphs: CUDA graphs are captured.
    """

    version: tuple[int, ...]
    card: tuple[str, ...] = ()
    topology: Literal["tp1", "tpn", "pp"] = "tp1"
    link: str = "none"
    gpus: int = 1
    runner: str = "v1"
    graphs: bool = True


@cache
def overhead(quantity: str, situation: Situation) -> Measured:
    """The first row of the table for a quantity that holds for this situation.

    Args:
        quantity: "non_torch", "nccl_outside", "graph_base", "graph_layer", ... (first column).

    Raises:
        UsageError: the table has no such row.
    """
    for row in _rows():
        if row["quantity"] == quantity and _holds(row, situation):
            low, best, high = (round(float(row[f"{side}_mib"]) * MIB) for side in ("low", "best", "high"))
            return Measured(low, best, high, int(row["n"]), row["source"], int(row["per"]))
    release = ".".join(map(str, situation.version))
    raise UsageError(
        f"no figure for {quantity} of engine version {release} as asked: leave --model-runner to the version, or take"
        " another --engine-version",
        field="engine_version",
    )


def _holds(row: dict[str, str], asked: Situation) -> bool:
    last = row["last_version"]
    return (
        _numbers(row["first_version"]) <= asked.version
        and (not last or asked.version[: len(_numbers(last))] <= _numbers(last))
        and _is_card(row["gpu_class"], asked.card)
        and row["topology"] in (asked.topology, "any")
        and row["link"] in (asked.link, "any")
        and int(row["least_gpus"]) <= asked.gpus
        and row["runner"] in (asked.runner, "any")
        and row["graphs"] in ("yes" if asked.graphs else "no", "any")
    )


def _is_card(patterns: str, card: tuple[str, ...]) -> bool:
    return patterns == "any" or any(fnmatchcase(name, pattern) for pattern in patterns.split(";") for name in card)


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = files("planner.engines.vllm.tables").joinpath("overhead.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
