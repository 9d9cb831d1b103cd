"""Memory of captured CUDA graphs. No formula gives it better than within a factor of two (`tables/graphs.csv`)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from planner.contract.component import Component
from planner.units import MIB, format_size


def decode_graphs(*, sizes: int, layers: int, experts: bool) -> Component:
    """Graphs of so many batch sizes over so many layers."""
    row = _row("decode_moe" if experts else "decode_dense")
    low, best, high = (round(float(row[f"{side}_mib"]) * sizes * layers * MIB) for side in ("low", "best", "high"))
    return Component(
        name="cuda_graphs",
        low=low,
        best=best,
        high=high,
        evidence="measured",
        formula=f"{sizes} batch sizes x {layers} layers x {row['best_mib']} MiB (n={row['count']})",
        source=row["source"],
    )


def prefill_graphs(sizes: int) -> Component:
    """Graphs of so many prefill lengths."""
    row = _row("prefill")
    low, best, high = (round(float(row[f"{side}_mib"]) * MIB) for side in ("low", "best", "high"))
    return Component(
        name="prefill_graphs",
        low=low,
        best=best,
        high=high,
        evidence="measured",
        formula=f"{sizes} captured lengths: {format_size(best)} (n={row['count']})",
        source=row["source"],
    )


def _row(kind: str) -> dict[str, str]:
    return next(row for row in _rows() if row["kind"] == kind)


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = files("planner.engines.sglang.tables").joinpath("graphs.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
