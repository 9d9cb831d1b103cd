"""`vram-planner compare --engine A,B`: the same model, card and load by several engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from planner.contract.card import Card
from planner.contract.engine import find_engine
from planner.contract.inputs import check, option
from planner.contract.parser import parse
from planner.contract.reading import read_tokens
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.model.load import load_model
from planner.report.across import render_across
from planner.serving.across import across

SHARED = "Shared by the engines"
_MOST_ENGINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(Card):
    """Inputs that every engine has, under vLLM's names and a few of the others'."""

    quantization: Annotated[
        str | None, option("Plan the usual export of this name.", "--quantization", "-q", panel=SHARED, ours=True)
    ] = None
    kv_cache_dtype: Annotated[
        str | None, option("auto or fp8 (q8_0 where the engine says so).", "--kv-cache-dtype", panel=SHARED, ours=True)
    ] = None
    tensor_parallel_size: Annotated[
        int | None,
        Ge(1),
        Le(1024),
        option("GPUs.", "--tensor-parallel-size", "-tp", "--tp-size", "--tp", panel=SHARED, ours=True),
    ] = None
    max_model_len: Annotated[
        int | None,
        Ge(1),
        option(
            "Longest request.",
            "--max-model-len",
            "--context-length",
            "--max-seq-len",
            "--ctx-size",
            panel=SHARED,
            ours=True,
            read=read_tokens,
        ),
    ] = None
    format: Annotated[
        str, option("How to print.", panel=SHARED, ours=True, choices=("table", "json", "csv", "markdown"))
    ] = "table"
    wide: Annotated[bool, option("Print all columns, however wide.", panel=SHARED, ours=True)] = False


def several_engines(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """(engines, the other words) where --engine names more than one; None otherwise."""
    names: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--engine" and left:
            names += left.pop(0).split(",")
        elif word.startswith("--engine="):
            names += word.partition("=")[2].split(",")
        else:
            rest.append(word)
    named = [name for name in names if name.strip()]
    return (named, rest) if len(named) > 1 else None


def compare_engines(names: Sequence[str], words: Sequence[str]) -> int:
    """Print what each engine makes of the same question, and why they differ.

    Raises:
        PlannerError: an unknown engine, model or card, or an option that is no input of all engines.
    """
    if len(names) > _MOST_ENGINES:
        raise UsageError(f"--engine names {len(names)} engines; at most {_MOST_ENGINES}", field="engine")
    engines = [find_engine(name) for name in names]
    parsed = parse([Shared, Workload], words, hint=lambda name: "; with several engines only inputs that all have")
    if not parsed.positional:
        raise UsageError("no MODEL: give a bundled name, a folder, a file or a Hub id", field="model")
    shared, workload = parsed.record(Shared), parsed.record(Workload)
    check(shared)
    check(workload)
    model = load_model(parsed.positional[0])
    card = {name: getattr(shared, name) for name in ("gpu", "gpu_memory_bytes", "already_used_bytes")}
    axes = {
        "quantization": shared.quantization,
        "cache": shared.kv_cache_dtype,
        "ways": shared.tensor_parallel_size,
        "length": shared.max_model_len,
    }
    accounts = across(model, engines, card, axes, workload)
    if "max_model_len" not in parsed.given:
        # the engines that default to less than the model's positions are asked for the same length as the others
        longest = max((one.plan.max_model_len for one in accounts if one.plan is not None), default=None)
        accounts = across(model, engines, card, axes | {"length": longest}, workload) if longest else accounts
    query: dict[str, object] = {
        "model": model.id,
        "gpu": shared.gpu.name if shared.gpu is not None else None,
        "engines": [engine.name for engine in engines],
        "concurrency": workload.concurrency,
        **{name: value for name, value in axes.items() if value is not None},
    }
    width = None if shared.wide else "terminal"
    print(render_across(accounts, format=shared.format, query=query, width=width))  # type: ignore[arg-type]
    return 0 if any(workload.accepts(account.verdict) for account in accounts) else 1
