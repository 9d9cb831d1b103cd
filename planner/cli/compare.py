"""`vram-planner compare`: a table of options."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from annotated_types import Ge

from planner.cli.across import compare_engines, several_engines
from planner.cli.words.questions import FORMATS, Asking, questioned
from planner.contract.engine import Engine
from planner.contract.inputs import input_named, option
from planner.contract.parser import Parsed
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.memory.cache.formats import cache_format
from planner.memory.exports import check_export_name
from planner.model.load import load_model
from planner.model.model import Model
from planner.report.comparison import MOST_SORTED, fitting, ordered, render_comparison, stream
from planner.report.printer import Width
from planner.serving.grid import Cell, Grid, grid_cells
from planner.serving.prices import PRICE, PRICE_FILE, all_prices, unused_notes

_PROGRESS_FROM: Final = 20_000
_MOST_MODELS: Final = 64
# beyond so many cells speeds are left out: each takes a plan of its own
_MOST_SPEEDS: Final = 1_000
# prompts with answers, and documents
_USUAL_LENGTHS: Final = (8192, 32_768)
TABLE: Final = "Table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which rows are printed, and how."""

    fits_only: Annotated[bool, option("Leave out what does not fit.", panel=TABLE, ours=True, common=True)] = False
    sort: Annotated[
        str | None,
        option(
            "What the rows are sorted by.",
            panel=TABLE,
            ours=True,
            common=True,
            choices=("weights", "kv-per-token", "free", "tokens", "concurrency", "context"),
        ),
    ] = None
    price: Annotated[tuple[str, ...], PRICE] = ()
    prices: Annotated[str | None, PRICE_FILE] = None
    limit: Annotated[int | None, Ge(1), option("At most this many rows.", panel=TABLE, ours=True, common=True)] = None
    format: Annotated[
        str,
        option("How to print.", panel=TABLE, ours=True, common=True, choices=FORMATS),
    ] = "table"
    wide: Annotated[bool, option("Print all columns, however wide.", panel=TABLE, ours=True)] = False


def compare(words: Sequence[str]) -> int:
    """Compare storage formats, cache types, parallel sizes, contexts and cards for one model or several.

    --gpu, --quantization, --kv-cache-dtype, --tensor-parallel-size and --max-model-len take several values, separated
    by commas; every other option is as for serve. Without formats and types of cache the usual ones are compared: as
    stored, fp8, AWQ, GPTQ, NVFP4 where the card has it, on llama.cpp the usual mixes. * marks the Pareto set: no other
    row of the same model, card and context has less weight memory, more requests and better published quality; formats
    without evidence have no mark. csv and json stream: a million rows take constant memory.

    Several engines (--engine vllm,sglang,tensorrt-llm) are set side by side for one model, card and load, with which
    term makes them differ.

    Example: vram-planner compare Qwen/Qwen3-8B --gpu 4090 --gpu L40S -q none,fp8,awq --kv-cache-dtype auto,fp8
    """
    several = several_engines(words)
    if several is not None:
        return compare_engines(*several)
    asked = questioned(
        words,
        Workload,
        Listing,
        about=compare.__doc__ or "",
        name="compare",
        subject="MODEL...",
        lists=_lists,
        most_positional=_MOST_MODELS,
    )
    if asked is None:
        return 0
    engine, parsed = asked
    listing, workload = parsed.record(Listing), parsed.record(Workload)
    grid = _grid(engine, parsed, workload)
    query: dict[str, object] = {
        "models": list(parsed.positional),
        "gpus": list(parsed.given.get("gpu", ())),
        "quantizations": [name or "none" for name in grid.quantizations],
        "kv_cache_dtypes": list(grid.cache_dtypes),
        "tensor_parallel_sizes": list(grid.ways),
        "max_model_lens": list(grid.lengths),
        "concurrency": workload.concurrency,
        "engine_version": grid.deployments[0].engine_version,
        "cells": grid.cells,
    }
    width: Width = None if listing.wide else "terminal"
    fits = False

    def noticed(cells: Iterable[Cell]) -> Iterator[Cell]:
        nonlocal fits
        for cell in cells:
            fits = fits or workload.accepts(cell.verdict)
            yield cell

    prices = all_prices(listing.prices, listing.price)
    notes = unused_notes(prices, [card.gpu.id for card in grid.deployments if card.gpu is not None])
    cells: Iterable[Cell] = noticed(_with_progress(grid_cells(grid), grid.cells))
    if listing.fits_only:
        cells = fitting(cells)
    if listing.sort is not None:
        print(
            render_comparison(
                ordered(cells, listing.sort, listing.limit),
                format=listing.format,
                query=query,
                width=width,
                prices=prices,
                notes=notes,
            )
        )
    elif grid.cells <= MOST_SORTED or listing.format in ("table", "markdown", "html"):
        if grid.cells > MOST_SORTED:
            raise UsageError(
                f"{grid.cells:,} cells are too many for a table: use --sort with --limit, or --format csv or json",
                field="format",
            )
        shown = list(cells)[: listing.limit]
        print(render_comparison(shown, format=listing.format, query=query, width=width, prices=prices, notes=notes))
    else:
        for piece in stream(cells, format=listing.format, query=query):
            sys.stdout.write(piece)
    return 0 if fits else 1


def _lists(engine: Engine) -> frozenset[str]:
    """The inputs that take several values: the card, and the engine's own axes."""
    axes = engine.axes
    return frozenset({"gpu", axes.quantization, axes.cache, axes.ways, axes.length} - {""})


def _grid(engine: Engine, parsed: Parsed, workload: Workload) -> Grid:
    axes, lists = engine.axes, _lists(engine)
    single = {name: value for name, value in parsed.given.items() if name not in lists}
    names = parsed.given.get("gpu", ())
    cards = [{**single, "gpu": name} for name in names if name is not None]
    if "gpu_memory_bytes" in single or not cards:
        cards = [{name: value for name, value in card.items() if name != "gpu_memory_bytes"} for card in cards]
        cards.append(single)
    deployments = [engine.deployment(replace(parsed, given=card)) for card in cards]
    asking = parsed.record(Asking)
    if not parsed.positional:
        raise UsageError("no MODEL: give one model or several", field="model")
    loaded = [load_model(name, assume_family=asking.assume_family) for name in parsed.positional]
    usual = not {axes.quantization, axes.cache} & set(parsed.given)
    if usual:
        quantizations = _usual_formats(engine, loaded, deployments)
        # an engine without an input for it has one cache type
        cache_dtypes = list(axes.caches if axes.cache else axes.caches[:1])
    else:
        quantizations = list(parsed.given.get(axes.quantization, (None,)))
        cache_dtypes = list(parsed.given.get(axes.cache, axes.caches[:1]))
    for name in quantizations:
        if name is not None:
            check_export_name(name)
    for name in cache_dtypes:
        cache_format(name, None)
    sizes = list(parsed.given.get(axes.ways, (1,)))
    if not all(1 <= size <= 1024 for size in sizes):
        option_name = input_named(engine.Deployment, axes.ways).spelling
        raise UsageError(f"{option_name}: expected whole numbers from 1 to 1,024", field=axes.ways)
    lengths = list(parsed.given.get(axes.length, ()))
    if any(length is None or length < 1 for length in lengths):
        option_name = input_named(engine.Deployment, axes.length).spelling
        raise UsageError(f"{option_name} must be numbers of tokens such as 8192 or 32K", field=axes.length)
    if not lengths:
        longest = min(model.longest_request for model in loaded)
        lengths = sorted({min(length, longest) for length in _USUAL_LENGTHS}) if usual else [longest]
    count = len(loaded) * len(deployments) * len(quantizations) * len(cache_dtypes) * len(sizes) * len(lengths)
    return Grid(
        engine=engine,
        models=loaded,
        deployments=deployments,
        quantizations=quantizations,
        cache_dtypes=cache_dtypes,
        ways=sizes,
        lengths=lengths,
        workload=workload,
        speeds=count <= _MOST_SPEEDS,
    )


def _usual_formats(engine: Engine, models: Sequence[Model], deployments: Sequence[Any]) -> list[str | None]:
    """As stored, and what people compare on these cards where every checkpoint is plain."""
    if not engine.axes.quantization or any(
        model.spec.quantization_config is not None or model.stored for model in models
    ):
        return [None]
    names = dict.fromkeys(name for card in deployments for name, _ in engine.usual_formats(card.gpu))
    return [None, *names]


def _with_progress(cells: Iterator[Cell], total: int) -> Iterator[Cell]:
    if total < _PROGRESS_FROM or not sys.stderr.isatty():
        yield from cells
        return
    import typer  # a progress bar is for terminals

    with typer.progressbar(cells, length=total, file=sys.stderr, update_min_steps=_PROGRESS_FROM // 20) as shown:
        yield from shown
