"""Measured starts of TensorRT-LLM: the pool from the printed free memory, and the bytes of the printed tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from planner.contract.plan import ServingPlan
from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.plan import bytes_per_token
from planner.engines.tensorrt_llm.pool import block_pool, left_after_dry_run
from planner.engines.tensorrt_llm.resolve import Resolved, resolve
from planner.engines.tensorrt_llm.tables.releases import NEWEST, Release, parse_release, rules_at
from planner.errors import PlannerError
from planner.hardware.gpus import unnamed_gpu
from planner.model.load import load_model
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.scoring import COMMAND_LINE, Row, Unscored

GIVEN_MEMORY: Final = "given memory"
_VERSION: Final = re.compile(r"\d{1,2}\.\d{1,3}")
_DEFAULT_FRACTION: Final = 0.9


def score(cases: Iterable[Case]) -> tuple[list[Row], list[Unscored]]:
    """Every row that can be made of these cases, and why others cannot."""
    rows: list[Row] = []
    left: list[Unscored] = []
    for case in cases:
        try:
            found = [*pool_rows(case), *_model_rows(case, left)]
        except PlannerError as error:  # a release before those described
            left.append(Unscored(case, "all", f"refused: {error}"))
            continue
        rows += found
        if not found:
            left.append(Unscored(case, "all", "prints no figure of the pool that can be followed"))
    return rows, left


def _row(case: Case, component: str, planned: float, measured: float, unit: str) -> Row:
    group = (case.model, "", "", str(case.given("tensor_parallel") or 1), "1", str(case.given("engine_version") or ""))
    return Row(
        case=case, component=component, mode=GIVEN_MEMORY, planned=planned, measured=measured, unit=unit, group=group
    )


def release_of(case: Case) -> Release:
    """The release that was printed, the last of a range; the newest where none was."""
    found = _VERSION.findall(str(case.given("engine_version") or ""))
    return parse_release(found[-1] if found and found[-1] != "0.5" else "0.5" if found else NEWEST)


def pool_rows(case: Case) -> Iterator[Row]:
    """The budget and the blocks from the printed free memory."""
    release = release_of(case)
    given = case.given("kv_cache_free_gpu_memory_fraction")
    fraction = float(given) if isinstance(given, int | float) else _DEFAULT_FRACTION
    free, peak, total = (case.number(name) for name in ("free_at_kv_gib", "peak_profiling_gib", "gpu_memory_gib"))
    stated = case.given("gpu_memory_gib")
    total = total or (float(stated) if isinstance(stated, int | float) else None)
    budget = case.number("kv_budget_gib") or case.number("kv_size_gib")
    if budget is None:
        return
    if free is not None:
        left = round(free * GIB)
    elif peak is not None and total is not None:
        temporary = round((case.number("temporary_kv_gib") or 0) * GIB)
        left = left_after_dry_run(round(total * GIB), round(peak * GIB), temporary, release)
    else:
        return
    block = case.given("tokens_per_block")
    cell = _printed_cell(case)
    pool = block_pool(
        left,
        fraction=fraction,
        bytes_per_token=cell,
        tokens_per_block=int(block) if isinstance(block, int) else int(rules_at(release)["tokens_per_block"]),
        release=release,
    )
    yield _row(case, "pool", pool.budget_bytes / GIB, budget, "GiB")
    blocks = case.number("num_blocks")
    if blocks and cell:
        yield _row(case, "blocks", pool.blocks, blocks, "blocks")


def planned_rows(case: Case, plan: ServingPlan) -> Iterator[Row]:
    """What the plan says from the command line alone."""
    tokens, size = case.number("kv_tokens"), case.number("kv_size_gib")
    if tokens and plan.cache.tokens is not None:
        yield replace(_row(case, "tokens", plan.cache.tokens, tokens, "tokens"), mode=COMMAND_LINE)
    if size:
        yield replace(_row(case, "pool", plan.cache.reserved_bytes / GIB, size, "GiB"), mode=COMMAND_LINE)


def _printed_cell(case: Case) -> int:
    """Bytes of a token where they are printed or follow from the pool; 0 where they do not."""
    printed = case.number("kv_bytes_per_token")
    if printed:
        return int(printed)
    size, tokens = case.number("kv_size_gib"), case.number("kv_tokens")
    if not size or not tokens or size < 1:
        return 0
    # a cell is a whole number of KiB
    return max(1024, round(size * GIB / tokens / 1024) * 1024)


def _model_rows(case: Case, left: list[Unscored]) -> Iterator[Row]:
    """Bytes of the printed tokens by the model's geometry."""
    size, tokens, cell = case.number("kv_size_gib"), case.number("kv_tokens"), case.number("kv_bytes_per_token")
    if case.config is None or (not tokens and not cell):
        return
    try:
        model = load_model(case.config)
        resolved = _resolved(case, model)
        own = bytes_per_token(model, resolved)
    except PlannerError as error:
        left.append(Unscored(case, "all", f"refused: {error}"))
        return
    if cell:
        yield _row(case, "bytes of a token", own, cell, "B")
    elif size and tokens:
        yield _row(case, "bytes of the tokens", tokens * own / GIB, size, "GiB")


def _resolved(case: Case, model: Any) -> Resolved:
    tensor = case.given("tensor_parallel")
    return resolve(
        model,
        Deployment(
            gpu=unnamed_gpu(80 * GIB),
            engine_version=".".join(map(str, release_of(case))),
            tp_size=int(tensor) if isinstance(tensor, int) else 1,
            kv_cache_dtype=str(case.given("kv_cache_dtype") or "auto"),
        ),
    )
