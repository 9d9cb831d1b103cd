"""Published measurements of formats (evidence.csv), and their bands by size class and kind of metric.

A distance is KLD to the unquantised model (nats), the share of equal top tokens, or the rise of perplexity; a task is
what is kept of a benchmark's score, in percent. Nothing is interpolated: without rows there is no evidence.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Final

# so many rows of a size class make a format one that may be proposed
ENOUGH_ROWS: Final = 3
_CLASSES: Final = ((3.0, "<3B"), (15.0, "3-14B"), (40.0, "15-40B"), (float("inf"), ">40B"))
_BILLION: Final = 1_000_000_000
# benchmarks whose answers are reasoned out; the others ask for what is known
_HARD: Final = ("gsm8k", "math", "aime", "gpqa", "humaneval", "livecode", "ifeval", "mrcr", "bbh", "mbpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published measurement."""

    format: str
    kind: str
    model: str
    parameters: float | None
    metric: str
    baseline: str
    quantised: str
    change: float | None
    source: str
    date: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The spread of rows of one kind: the least, the median, the most, how many, from how many sources, how old."""

    metric: str
    least: float
    median: float
    most: float
    n: int
    sources: int
    newest: str


def size_class(parameters: int) -> str:
    """The class that a model of so many parameters is compared in."""
    return next(name for limit, name in _CLASSES if parameters / _BILLION < limit)


@cache
def rows() -> tuple[Row, ...]:
    """Every published row."""
    text = files("planner.memory.quality").joinpath("evidence.csv").read_text("utf-8")
    return tuple(
        Row(
            format=row["format"],
            kind=row["kind"],
            model=row["model"],
            parameters=float(row["parameters_b"]) if row["parameters_b"] else None,
            metric=row["metric"],
            baseline=row["baseline"],
            quantised=row["quantised"],
            change=float(row["recovery_or_delta"]) if row["recovery_or_delta"] else None,
            source=row["source"],
            date=row["date"],
            note=row["note"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def metric_class(metric: str) -> str:
    """KLD, "top token", "perplexity", "hard tasks" or "knowledge"."""
    lowered = metric.lower()
    if "kld" in lowered:
        return "KLD"
    if "top token" in lowered:
        return "top token"
    if lowered.startswith("ppl"):
        return "perplexity"
    return "hard tasks" if any(word in lowered for word in _HARD) else "knowledge"


def rows_of(format: str, kind: str, parameters: int | None = None) -> tuple[Row, ...]:
    """The rows of a format, of its size class where the model's parameters are given."""
    wanted = format.lower()
    found = tuple(row for row in rows() if row.kind == kind and row.format.lower() == wanted)
    if parameters is None:
        return found
    of_class = size_class(parameters)
    return tuple(
        row for row in found if row.parameters is not None and size_class(int(row.parameters * _BILLION)) == of_class
    )


def has_evidence(format: str, kind: str, parameters: int) -> bool:
    """Whether enough rows of this size class stand behind a format."""
    return len(rows_of(format, kind, parameters)) >= ENOUGH_ROWS


def bands(found: Iterable[Row]) -> tuple[Band, ...]:
    """The rows by kind of metric, distances first."""
    grouped: dict[str, list[Row]] = {}
    for row in found:
        if row.change is not None:
            grouped.setdefault(metric_class(row.metric), []).append(row)
    order = ("KLD", "top token", "perplexity", "hard tasks", "knowledge")
    return tuple(
        Band(
            metric=name,
            least=min(row.change for row in grouped[name] if row.change is not None),
            median=median(row.change for row in grouped[name] if row.change is not None),
            most=max(row.change for row in grouped[name] if row.change is not None),
            n=len(grouped[name]),
            sources=len({row.source for row in grouped[name]}),
            newest=max(row.date for row in grouped[name]),
        )
        for name in order
        if name in grouped
    )


def in_words(format: str | None, kind: str, parameters: int) -> str:
    """What is known of a format at this size, for a table's cell: tasks kept, else the distance; "no evidence"."""
    if format is None:
        return "as stored"
    found = bands(rows_of(format, kind, parameters))
    if not found:
        return "no evidence"
    tasks = [band for band in found if band.metric in ("knowledge", "hard tasks")]
    band = min(tasks, key=lambda one: one.median) if tasks else found[0]
    if tasks:
        return f"{band.least:.0f}-{band.median:.0f}-{band.most:.0f}% of {band.metric} (n={band.n})"
    unit = {"KLD": " nats", "top token": "%", "perplexity": "% PPL"}[band.metric]
    return f"{band.least:g}-{band.median:g}-{band.most:g}{unit} (n={band.n})"
