"""Cells of a comparison as rows: streamed, sorted, filtered, and the Pareto set marked."""

from __future__ import annotations

import csv
import heapq
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from planner.contract.component import SIDES
from planner.contract.plan import VERDICTS
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.memory.quality.evidence import band_rows, has_evidence, kept_in_short, least_kept, no_worse, sentences
from planner.report.printer import Width, printed
from planner.report.rows import JSON_SCHEMA, Column, Format, render_rows
from planner.serving.grid import Cell
from planner.serving.prices import Prices, price_of, usd_per_million
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
_LEGEND = "kept: median share of tasks, else top tokens or KLD. Published, least to median to most:"


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
    """Indices of the cells that no other beats in memory (weights of all cards), requests at once and quality together,
    among those of the same model, card and context that fit and whose formats have evidence.

    Quality is what is published, by medians of the same metric (`no_worse`); formats that share none do not compare.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        if cell.verdict in ("fits", "tight") and _proven(cell):
            groups.setdefault((cell.model, cell.gpu, cell.max_model_len), []).append(index)
    best: set[int] = set()
    for members in groups.values():
        front: list[int] = []
        for index in sorted(members, key=lambda i: (_memory(cells[i]), -cells[i].concurrency, cells[i].max_model_len)):
            if not any(_beats(cells[other], cells[index]) for other in front):
                front = [other for other in front if not _beats(cells[index], cells[other])] + [index]
        best.update(front)
    return best


def _memory(cell: Cell) -> int:
    return cell.weights_bytes * cell.tensor_parallel_size


def _proven(cell: Cell) -> bool:
    return all(
        format is None or has_evidence(format, kind, cell.parameters)
        for format, kind in ((cell.weight_format, "weights"), (cell.cache_type, "cache"))
    )


def _beats(one: Cell, other: Cell) -> bool:
    """At least as good in everything, and better in something."""
    mine, its = (one.weight_format, one.cache_type), (other.weight_format, other.cache_type)
    if _memory(one) > _memory(other) or one.concurrency < other.concurrency or not _no_worse(one, other):
        return False
    return (
        _memory(one) < _memory(other)
        or one.concurrency > other.concurrency
        or (mine != its and not _no_worse(other, one))
    )


def _no_worse(one: Cell, other: Cell) -> bool:
    return no_worse(one.weight_format, other.weight_format, "weights", one.parameters) and no_worse(
        one.cache_type, other.cache_type, "cache", one.parameters
    )


def render_comparison(
    cells: list[Cell],
    *,
    format: str,
    query: Mapping[str, object],
    width: Width = "terminal",
    prices: Prices | None = None,
    notes: Sequence[str] = (),
) -> str:
    """A list of cells, the Pareto set marked with * (table, Markdown) or "pareto": true (JSON, CSV)."""
    marked = pareto(cells)
    rows = [
        as_row(cell) | _kept(cell) | _cost(cell, prices or {}) | {"pareto": index in marked}
        for index, cell in enumerate(cells)
    ]
    people = format not in (Format.JSON, Format.CSV, Format.HTML)
    shown = rows[:_PEOPLE_ROWS] if people else rows
    columns = [
        column
        for column in _COLUMNS
        if column.field not in ("reason", "price", "usd_per_million_best") or any(row[column.field] for row in shown)
    ]
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
    if people:
        text += _below(cells, notes, width)
    return text


def _below(cells: Sequence[Cell], notes: Sequence[str], width: Width) -> str:
    """What is published of the formats that were compared, and the notes."""
    lines = dict.fromkeys(
        sentences(format, kind, cell.parameters)
        for kind in ("weights", "cache")
        for cell in cells
        for format in ((cell.weight_format if kind == "weights" else cell.cache_type),)
        if format is not None
    )
    said = [*(f"note: {note}" for note in notes)]
    if lines:
        said = [_LEGEND, *(f"  {line}" for line in lines), *said]
    return "\n\n" + printed(said, width) if said else ""


def _kept(cell: Cell) -> dict[str, object]:
    """What is published of the row's formats: a cell for people, the bands for programs."""
    weights = kept_in_short(cell.weight_format, "weights", cell.parameters)
    if cell.cache_type is not None:
        cached = kept_in_short(cell.cache_type, "cache", cell.parameters)
        weights = f"{weights}; {cached}" if cell.weight_format is not None else f"cache {cached}"
    return {
        "kept": least_kept(cell.weight_format, cell.cache_type, cell.parameters),
        "quality": weights,
        "weight_quality": band_rows(cell.weight_format, "weights", cell.parameters),
        "cache_quality": band_rows(cell.cache_type, "cache", cell.parameters),
    }


def _cost(cell: Cell, prices: Prices) -> dict[str, object]:
    card = find_gpu(cell.gpu).id if prices and cell.gpu not in ("card", "unnamed card") else ""
    price = price_of(prices, card) if prices else None
    hourly = None if price is None else price.usd_per_hour * cell.tensor_parallel_size
    row: dict[str, object] = {
        "usd_per_hour": hourly,
        "price": None if price is None else price.in_words(cell.tensor_parallel_size),
    }
    for side in SIDES:
        rate = getattr(cell, f"batch_tokens_per_second_{side}")
        row[f"usd_per_million_{side}"] = None if hourly is None or not rate else usd_per_million(hourly, rate)
    return row


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


def _speed(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else "-"


def _usd(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"


def _verdict(value: object) -> str:
    return "no" if value == "does_not_fit" else VERDICTS.get(str(value), str(value))


_COLUMNS = (
    Column(field="pareto", heading="", text=_mark),
    Column(field="engine", heading="engine", importance=11),
    Column(field="model", heading="model", importance=2),
    Column(field="gpu", heading="gpu", text=_card, importance=1),
    Column(field="tensor_parallel_size", heading="tp", right=True, importance=8),
    Column(field="quantization", heading="weights as"),
    Column(field="kv_cache_dtype", heading="cache", importance=1),
    Column(field="max_model_len", heading="ctx", right=True),
    Column(field="weights_bytes", heading="GiB", right=True, text=_gib, importance=3),
    Column(field="bytes_per_token", heading="KV B/token", right=True, importance=10),
    Column(field="kv_cache_bytes", heading="KV GiB", right=True, text=_gib, importance=7),
    Column(field="tokens", heading="tokens", right=True, importance=9),
    Column(field="concurrency", heading="at once", right=True),
    Column(field="tokens_per_second_best", heading="tok/s", right=True, text=_speed),
    Column(field="kept", heading="kept"),
    Column(field="quality", heading="published", importance=6),
    Column(field="verdict", heading="fit", text=_verdict),
    Column(field="price", heading="price", importance=5),
    Column(field="usd_per_million_best", heading="$/M", right=True, text=_usd),
    Column(field="reason", heading="reason", importance=12),
)
