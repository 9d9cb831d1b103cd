"""Many plans at once: every combination of models, cards, formats, cache types, parallel sizes and contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from planner.contract.component import SIDES
from planner.contract.engine import AtLength, Engine
from planner.contract.workload import ONE_REQUEST, Workload
from planner.errors import PlannerError
from planner.model.model import Model
from planner.serving.throughput import decode_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What to combine, with one engine. Every list must hold at least one value.

    Args:
        deployments: one for each card, everything else about them equal.
        quantizations, cache_dtypes, ways: values of the engine's own inputs; None leaves the deployment's.
        lengths: of the longest request.
        speeds: work out the speed of each cell that fits, which costs a plan of its own.
    """

    engine: Engine
    models: Sequence[Model]
    deployments: Sequence[Any]
    quantizations: Sequence[str | None] = (None,)
    cache_dtypes: Sequence[str | None] = (None,)
    ways: Sequence[int | None] = (None,)
    lengths: Sequence[int]
    workload: Workload = ONE_REQUEST
    speeds: bool = False

    @property
    def cells(self) -> int:
        """How many combinations there are."""
        count = len(self.models) * len(self.deployments) * len(self.quantizations) * len(self.cache_dtypes)
        return count * len(self.ways) * len(self.lengths)


class Cell(NamedTuple):
    """One combination; sizes in bytes on one GPU, as in `AtLength`.

    Args:
        verdict: "fits", "tight", "does_not_fit", "refused" or "unknown".
        weight_format, cache_type: the names asked for; None as stored, and the engine's default.
        tokens_per_second_*: of one request at half the length; batch_*: of all that fit at once. None where not asked
            for, not derived, or nothing fits.
        reason: why a refused cell could not be planned, or the engine would not start at this length.
    """

    engine: str
    model: str
    gpu: str
    tensor_parallel_size: int
    quantization: str
    kv_cache_dtype: str
    max_model_len: int
    weights_bytes: int
    bytes_per_token: int
    kv_cache_bytes: int
    tokens: int
    concurrency: int
    verdict: str
    reason: str = ""
    weight_format: str | None = None
    cache_type: str | None = None
    parameters: int = 0
    tokens_per_second_low: float | None = None
    tokens_per_second_best: float | None = None
    tokens_per_second_high: float | None = None
    batch_tokens_per_second_low: float | None = None
    batch_tokens_per_second_best: float | None = None
    batch_tokens_per_second_high: float | None = None


def grid_cells(grid: Grid) -> Iterator[Cell]:
    """Every cell, lengths innermost; a combination that the planner refuses gives cells with verdict "refused"."""
    axes = grid.engine.axes
    for model in grid.models:
        for card in grid.deployments:
            for ways in grid.ways:
                for quantization in grid.quantizations:
                    for cache in grid.cache_dtypes:
                        asked = {axes.ways: ways, axes.quantization: quantization, axes.cache: cache}
                        changes = {name: value for name, value in asked.items() if name and value is not None}
                        yield from _cells(grid, model, replace(card, **changes))


def _cells(grid: Grid, model: Model, deployment: Any) -> Iterator[Cell]:
    axes, name = grid.engine.axes, grid.engine.name
    gpu = deployment.gpu.name if deployment.gpu else "card"
    ways = getattr(deployment, axes.ways) if axes.ways else 1
    asked = getattr(deployment, axes.quantization) if axes.quantization else None
    cache = (getattr(deployment, axes.cache) if axes.cache else None) or "auto"
    names = (asked, None if cache in ("auto", axes.caches[0]) else cache, model.parameters)
    try:
        prepared = grid.engine.prepare(model, deployment, grid.workload)
    except PlannerError as error:
        stored = asked or "as stored"
        for length in grid.lengths:
            refused = (length, 0, 0, 0, 0, 0, "refused", str(error))
            yield Cell(name, model.id, gpu, ways, stored, cache, *refused, *names)
        return
    for length in grid.lengths:
        try:
            at = prepared.at(length)
        except PlannerError as error:
            at = AtLength(length, asked or "as stored", 0, 0, 0, 0, 0, "refused", str(error))
        speeds = _speeds(grid, model, deployment, at) if grid.speeds and at.verdict in ("fits", "tight") else ()
        yield Cell(
            name,
            model.id,
            gpu,
            ways,
            asked if asked and at.weights_as == "as stored" else at.weights_as,
            cache,
            length,
            at.weights_bytes,
            at.bytes_per_token,
            at.cache_bytes,
            at.tokens,
            at.concurrency,
            at.verdict,
            at.reason,
            *names,
            *speeds,
        )


def _speeds(grid: Grid, model: Model, deployment: Any, at: AtLength) -> tuple[float, ...]:
    """Tokens a second of one request and of all at once, each low, best, high; empty where they are not derived."""
    try:
        plan = grid.engine.plan(
            model, replace(deployment, **{grid.engine.axes.length: at.max_model_len}), grid.workload
        )
        alone = decode_step(plan, sequences=1, context=at.max_model_len // 2)
    except PlannerError:
        return ()
    try:
        together = decode_step(plan, sequences=max(1, at.concurrency), context=at.max_model_len // 2)
    except PlannerError:  # the card's matrix rates are not listed
        return tuple(1 / alone.at(side) for side in SIDES)
    each = [1 / alone.at(side) for side in SIDES]
    return (*each, *(max(1, at.concurrency) / together.at(side) for side in SIDES))
