"""Measured starts of TensorRT-LLM: the pool from the printed free memory, and the bytes of the printed tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from planner.contract.start_log import GIVEN_MEMORY, Compared
from planner.engines.tensorrt_llm.beside_log import DEFAULT_FRACTION, from_given_memory
from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.plan import bytes_per_token
from planner.engines.tensorrt_llm.resolve import Resolved, resolve
from planner.engines.tensorrt_llm.tables.releases import NEWEST, Release, parse_release
from planner.errors import PlannerError
from planner.hardware.gpus import unnamed_gpu
from planner.model.load import load_model
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.scoring import Row, Unscored, rows_of

_VERSION: Final = re.compile(r"\d{1,2}\.\d{1,3}")


def score(cases: Iterable[Case]) -> tuple[list[Row], list[Unscored]]:
    """Every row that can be made of these cases, and why others cannot."""
    rows: list[Row] = []
    left: list[Unscored] = []
    for case in cases:
        try:
            found = [*_pool_rows(case), *_model_rows(case, left)]
        except PlannerError as error:  # a release before those described
            left.append(Unscored(case, "all", f"refused: {error}"))
            continue
        rows += found
        if not found:
            left.append(Unscored(case, "all", "prints no figure of the pool that can be followed"))
    return rows, left


def _group(case: Case) -> tuple[str, ...]:
    return (case.model, "", "", str(case.given("tensor_parallel") or 1), "1", str(case.given("engine_version") or ""))


def release_of(case: Case) -> Release:
    """The release that was printed, the last of a range; the newest where none was."""
    found = _VERSION.findall(str(case.given("engine_version") or ""))
    return parse_release(found[-1] if found and found[-1] != "0.5" else "0.5" if found else NEWEST)


def _pool_rows(case: Case) -> list[Row]:
    """The budget and the blocks from the printed free memory."""
    given, block, total = (
        case.given(name) for name in ("kv_cache_free_gpu_memory_fraction", "tokens_per_block", "gpu_memory_gib")
    )
    found = from_given_memory(
        case.figures,
        release=release_of(case),
        fraction=float(given) if isinstance(given, int | float) else DEFAULT_FRACTION,
        total_gib=float(total) if isinstance(total, int | float) else None,
        tokens_per_block=int(block) if isinstance(block, int) else None,
    )
    return rows_of(case, found, _group(case))


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
    found = None
    if cell:
        found = Compared(figure="bytes of a token", planned=own, measured=cell, unit="B", mode=GIVEN_MEMORY)
    elif size and tokens:
        planned = tokens * own / GIB
        found = Compared(figure="bytes of the tokens", planned=planned, measured=size, mode=GIVEN_MEMORY)
    if found is not None:
        yield from rows_of(case, [found], _group(case))


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
