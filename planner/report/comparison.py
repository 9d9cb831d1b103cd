"""Cells of a comparison as rows: streamed, sorted, filtered, and the Pareto set marked."""

from __future__ import annotations

import csv
import heapq
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from planner.errors import UsageError
from planner.report.printer import Width
from planner.report.rows import JSON_SCHEMA, Column, Format, render_rows
from planner.serving.grid import Cell
from planner.units import gib

FIELDS = Cell._fields

_FIGURES = ("weights_bytes", "bytes_per_token", "kv_cache_bytes", "tokens", "concurrency")

# --sort names: the field, and whether more is better
SORTS: Mapping[str, tuple[str, bool]] = {
    "weights": ("weights_bytes", False),
    "kv-per-token": ("bytes_per_token", False),
    "free": ("kv_cache_bytes", True),
    "tokens": ("tokens", True),
    "concurrency": ("concurrency", True),
    "context": ("max_model_len", True),
}
# Sorting and the Pareto set hold every row they compare; beyond this, only the best rows are kept.
MOST_SORTED = 10_000
_PEOPLE_ROWS = 200


def as_row(cell: Cell) -> dict[str, object]:
    """The cell as a row of plain values; a refused one has no figures, where none was reached."""
    row: dict[str, object] = {name: getattr(cell, name) for name in FIELDS}
    if cell.verdict == "refused":
        row |= {name: row[name] or None for name in _FIGURES}
    return row


def fitting(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Only the cells that fit, at least tightly."""
    return (cell for cell in cells if cell.verdict in ("fits", "tight"))


def ordered(cells: Iterable[Cell], sort: str, limit: int | None) -> list[Cell]:
    """The best cells by one field, at most `limit` (default MOST_SORTED) of them, in memory bounded by that.

    Raises:
        UsageError: an unknown field.
    """
    if sort not in SORTS:
        raise UsageError(f"--sort is {sort[:40]!r}; expected one of {', '.join(SORTS)}", field="sort")
    field, more = SORTS[sort]
    count = min(limit or MOST_SORTED, MOST_SORTED)
    pick = heapq.nlargest if more else heapq.nsmallest
    return pick(count, cells, key=lambda cell: getattr(cell, field))


def pareto(cells: list[Cell]) -> set[int]:
    """Indices of the cells that no other beats in both memory (weights, fewer is better) and concurrency, among those
    of the same model, card and context that fit."""
    best: set[int] = set()
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        if cell.verdict in ("fits", "tight"):
            groups.setdefault((cell.model, cell.gpu, cell.max_model_len), []).append(index)
    for members in groups.values():
        most = -1
        by_memory = sorted(
            members,
            key=lambda i: (cells[i].weights_bytes * cells[i].tensor_parallel_size, -cells[i].concurrency),
        )
        for index in by_memory:
            if cells[index].concurrency > most:
                most = cells[index].concurrency
                best.add(index)
    return best


def render_comparison(cells: list[Cell], *, format: str, query: Mapping[str, object], width: Width = "terminal") -> str:
    """A list of cells, the Pareto set marked with * (table, Markdown) or "pareto": true (JSON, CSV)."""
    marked = pareto(cells)
    rows = [as_row(cell) | {"pareto": index in marked} for index, cell in enumerate(cells)]
    shown = rows if format in (Format.JSON, Format.CSV, Format.HTML) else rows[:_PEOPLE_ROWS]
    columns = _COLUMNS if any(row["reason"] for row in shown) else _COLUMNS[:-1]
    text = render_rows(
        shown,
        columns=columns,
        format=format,
        query=query,
        width=width,
        title="Comparison",
        plotted=("weights_bytes", "concurrency", "quantization"),
    )
    if len(shown) < len(rows):
        text += f"\n({len(rows) - len(shown):,} more rows: --format csv or json has all)"
    return text


def stream(cells: Iterable[Cell], *, format: str, query: Mapping[str, object]) -> Iterator[str]:
    """Pieces of text, a row at a time and in memory that does not grow, for grids too large to hold."""
    if format == Format.JSON:
        yield json.dumps({"schema": JSON_SCHEMA, "query": dict(query)})[:-1] + ', "rows": [\n'
        first = True
        for cell in cells:
            yield ("" if first else ",\n") + json.dumps(as_row(cell))
            first = False
        yield "\n]}\n"
        return
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    iterator = iter(cells)
    while chunk := list(islice(iterator, 1000)):
        writer.writerows([cell if cell.verdict != "refused" else list(as_row(cell).values()) for cell in chunk])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _gib(value: object) -> str:
    return gib(value) if isinstance(value, int) else "-"


def _card(value: object) -> str:
    """A card without the words that all of its maker's have."""
    return str(value).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _mark(value: object) -> str:
    return "*" if value else ""


_COLUMNS = (
    Column(field="pareto", heading="", text=_mark),
    Column(field="engine", heading="engine", importance=9),
    Column(field="model", heading="model", importance=2),
    Column(field="gpu", heading="gpu", text=_card, importance=1),
    Column(field="tensor_parallel_size", heading="tp", right=True, importance=6),
    Column(field="quantization", heading="weights as"),
    Column(field="kv_cache_dtype", heading="cache as", importance=1),
    Column(field="max_model_len", heading="context", right=True),
    Column(field="weights_bytes", heading="weights GiB", right=True, text=_gib),
    Column(field="bytes_per_token", heading="KV B/token", right=True, importance=8),
    Column(field="kv_cache_bytes", heading="KV GiB", right=True, text=_gib, importance=5),
    Column(field="tokens", heading="tokens", right=True, importance=7),
    Column(field="concurrency", heading="at once", right=True),
    Column(field="verdict", heading="verdict"),
    Column(field="reason", heading="reason", importance=10),
)
