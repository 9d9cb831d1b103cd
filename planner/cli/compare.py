"""`vram-planner compare`: a table of options."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

import typer

from planner.cli.deployment_options import DEFAULT_VERSION, allows_long_requests, find_card, token_count
from planner.engines.vllm.checks import check_values
from planner.engines.vllm.deployment import Deployment
from planner.errors import UsageError
from planner.memory.cache_formats import cache_format
from planner.memory.exports import check_export_name
from planner.model.load import load_model
from planner.report.comparison import MOST_SORTED, fitting, ordered, render_comparison, stream
from planner.report.rows import Format
from planner.serving.grid import Axes, Cell, compare_cells

_PROGRESS_FROM = 20_000


def compare(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="One model or several.")],
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="Card; repeat for several.")] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="Memory of an unnamed card.")] = None,
    quantization: Annotated[
        list[str] | None, typer.Option("--quantization", "-q", help="Formats, comma separated; 'none' is as stored.")
    ] = None,
    kv_cache_dtype: Annotated[list[str] | None, typer.Option(help="Cache types, comma separated.")] = None,
    tensor_parallel_size: Annotated[
        list[str] | None, typer.Option("--tensor-parallel-size", "-tp", help="Sizes, comma separated.")
    ] = None,
    max_model_len: Annotated[list[str] | None, typer.Option(help="Contexts, comma separated (8K,32K).")] = None,
    concurrency: Annotated[int, typer.Option(help="Requests that must fit at once.")] = 1,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="As vLLM's.")] = None,
    engine_version: Annotated[str, typer.Option(help="vLLM version, 0.4 to 0.33.")] = DEFAULT_VERSION,
    fits_only: Annotated[bool, typer.Option("--fits-only", help="Leave out what does not fit.")] = False,
    sort: Annotated[
        str | None, typer.Option(help="weights, kv-per-token, free, tokens, concurrency or context.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many rows.", min=1)] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Compare storage formats, cache types, parallel sizes, contexts and cards for one model or several.

    * marks the Pareto set: no other row of the same model, card and context has both less weight memory and more
    requests. csv and json stream: a million rows take constant memory.

    Example: vram-planner compare Qwen/Qwen3-8B --gpu 4090 --gpu L40S -q none,fp8,awq --kv-cache-dtype auto,fp8
    """
    axes = _axes(
        models, gpu, gpu_memory, quantization, kv_cache_dtype, tensor_parallel_size, max_model_len, concurrency,
        gpu_memory_utilization, engine_version,
    )  # fmt: skip
    query: dict[str, object] = {
        "models": models,
        "gpus": gpu or [],
        "quantizations": [name or "none" for name in axes.quantizations],
        "kv_cache_dtypes": list(axes.cache_dtypes),
        "tensor_parallel_sizes": list(axes.tensor_parallel_sizes),
        "max_model_lens": list(axes.lengths),
        "concurrency": concurrency,
        "engine_version": engine_version,
        "cells": axes.cells,
    }
    cells: Iterable[Cell] = _with_progress(compare_cells(axes), axes.cells)
    if fits_only:
        cells = fitting(cells)
    if sort is not None:
        typer.echo(render_comparison(ordered(cells, sort, limit), format=format, query=query))
    elif axes.cells <= MOST_SORTED or format in (Format.TABLE, Format.MARKDOWN):
        if axes.cells > MOST_SORTED:
            raise UsageError(
                f"{axes.cells:,} cells are too many for a table: use --sort with --limit, or --format csv or json",
                field="format",
            )
        typer.echo(render_comparison(list(cells)[:limit], format=format, query=query))
    else:
        for piece in stream(cells, format=format, query=query):
            sys.stdout.write(piece)


def _axes(
    models: list[str],
    gpu: list[str] | None,
    gpu_memory: str | None,
    quantization: list[str] | None,
    kv_cache_dtype: list[str] | None,
    tensor_parallel_size: list[str] | None,
    max_model_len: list[str] | None,
    concurrency: int,
    gpu_memory_utilization: float | None,
    engine_version: str,
) -> Axes:
    cards = [find_card(name, None) for name in gpu or []]
    if gpu_memory is not None or not cards:
        cards.append(find_card(None, gpu_memory))
    base = Deployment(
        engine_version=engine_version, gpu_memory_utilization=gpu_memory_utilization, concurrency=concurrency,
        allow_long_max_model_len=allows_long_requests(),
    )  # fmt: skip
    check_values(base)
    quantizations = [None if name == "none" else name for name in _split(quantization) or ["none"]]
    for name in quantizations:
        if name is not None:
            check_export_name(name)
    for name in _split(kv_cache_dtype):
        cache_format(name, None)
    loaded = [load_model(name) for name in models]
    lengths = [token_count(text) for text in _split(max_model_len)]
    if any(length is None or length < 1 for length in lengths):
        raise UsageError("--max-model-len must be numbers of tokens such as 8192 or 32K", field="max_model_len")
    return Axes(
        models=loaded,
        gpus=[replace(base, gpu=card, gpu_memory_bytes=size) for card, size in cards],
        quantizations=quantizations,
        cache_dtypes=_split(kv_cache_dtype) or ["auto"],
        tensor_parallel_sizes=[_whole(text) for text in _split(tensor_parallel_size) or ["1"]],
        lengths=[length for length in lengths if length] or [min(model.longest_request for model in loaded)],
        concurrency=concurrency,
    )


def _split(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= 1024):
        raise UsageError(f"--tensor-parallel-size is {text[:40]!r}; expected whole numbers from 1",
                         field="tensor_parallel_size")  # fmt: skip
    return int(text)


def _with_progress(cells: Iterator[Cell], total: int) -> Iterator[Cell]:
    if total < _PROGRESS_FROM or not sys.stderr.isatty():
        yield from cells
        return
    with typer.progressbar(cells, length=total, file=sys.stderr, update_min_steps=_PROGRESS_FROM // 20) as shown:
        yield from shown
