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
_TASKS: Final = ("hard tasks", "knowledge")
_METRICS: Final = ("KLD", "top token", "perplexity", *_TASKS)
_UNITS: Final = {"KLD": " nats", "top token": "%", "perplexity": "% PPL", "hard tasks": "%", "knowledge": "%"}
_CLASSES: Final = ((3.0, "<3B"), (15.0, "3-14B"), (40.0, "15-40B"), (float("inf"), ">40B"))
_BILLION: Final = 1_000_000_000
# two names of one storage (vLLM config/cache.py: fp8 is e4m3 on NVIDIA and AMD)
_SAME: Final = {
    ("cache", "fp8"): ("fp8", "fp8_e4m3"),
    ("cache", "fp8_e4m3"): ("fp8", "fp8_e4m3"),
}
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
    names = _SAME.get((kind, wanted), (wanted,))
    found = tuple(row for row in rows() if row.kind == kind and row.format.lower() in names)
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
        for name in _METRICS
        if name in grouped
    )


def vendor_only(found: Iterable[Row]) -> bool:
    """Whether the makers of the model or of the format alone measured it."""
    return all("vendor" in row.note for row in found)


def kept_in_short(format: str | None, kind: str, parameters: int) -> str:
    """A cell of a few characters: the median of the task kind that keeps least, else of the distance, with n."""
    if format is None:
        return "as stored"
    found = rows_of(format, kind, parameters)
    grouped = bands(found)
    if not grouped:
        return "no evidence"
    tasks = [band for band in grouped if band.metric in _TASKS]
    band = min(tasks, key=lambda one: one.median) if tasks else grouped[0]
    marked = " vendor" if vendor_only(found) else ""
    return f"{_figure(band.median, band.metric)} n={band.n}{marked}"


def sentences(format: str, kind: str, parameters: int) -> str:
    """All that is published of a format at this size: each metric as min-median-max with n, sources and newest date."""
    found = rows_of(format, kind, parameters)
    head = f"{format} ({kind}, {size_class(parameters)})"
    if not bands(found):
        return f"{head}: no evidence"
    parts = [
        f"{band.metric} {band.least:g} to {band.median:g} to {band.most:g}{_UNITS[band.metric]}"
        f" (n={band.n}, {band.sources} source{'s' if band.sources > 1 else ''}, {band.newest})"
        for band in bands(found)
    ]
    return f"{head}: {'; '.join(parts)}{'; vendor only' if vendor_only(found) else ''}"


def no_worse(one: str | None, other: str | None, kind: str, parameters: int) -> bool:
    """Whether what is published of one format lets it stand in for another: nothing is as good as what is stored, and
    two formats compare only by medians of the same metric."""
    if one is None or one == other:
        return True
    if other is None:
        return False
    mine = {band.metric: band.median for band in bands(rows_of(one, kind, parameters))}
    its = {band.metric: band.median for band in bands(rows_of(other, kind, parameters))}
    shared = [metric for metric in _METRICS if metric in mine and metric in its]
    tasks = [metric for metric in shared if metric in _TASKS]
    return bool(shared) and all(
        mine[metric] <= its[metric] if metric in ("KLD", "perplexity") else mine[metric] >= its[metric]
        for metric in tasks or shared[:1]
    )


def _figure(value: float, metric: str) -> str:
    return f"{value:.0f}%" if metric in (*_TASKS, "top token") else f"{value:.2g}{_UNITS[metric]}"


def band_rows(format: str | None, kind: str, parameters: int) -> list[dict[str, object]]:
    """The bands of a format as plain rows; none of what is stored."""
    return [
        {
            "metric": band.metric,
            "min": band.least,
            "median": band.median,
            "max": band.most,
            "n": band.n,
            "sources": band.sources,
            "date": band.newest,
        }
        for band in bands(rows_of(format or "", kind, parameters))
    ]


def least_kept(weights: str | None, cached: str | None, parameters: int) -> str:
    """The lesser median of two formats together in a few characters: tasks kept, else the distance; "-" where one of
    them has no evidence, "stored" where neither is asked for."""
    found = []
    for format, kind in ((weights, "weights"), (cached, "cache")):
        if format is not None:
            grouped = {band.metric: band.median for band in bands(rows_of(format, kind, parameters))}
            if not grouped:
                return "-"
            tasks = [grouped[metric] for metric in _TASKS if metric in grouped]
            first = next(iter(grouped))
            found.append((not tasks, min(tasks) if tasks else grouped[first], "" if tasks else first))
    if not found:
        return "stored"
    distance, value, metric = max(found) if any(one[0] for one in found) else min(found)
    return _figure(value, metric or _TASKS[0]) if distance else f"{value:.0f}%"
