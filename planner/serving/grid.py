"""Many plans at once: every combination of models, cards, formats, cache types, parallel sizes and contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from planner.contract.engine import AtLength, Engine
from planner.contract.workload import ONE_REQUEST, Workload
from planner.errors import PlannerError
from planner.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What to combine, with one engine. Every list must hold at least one value.

    Args:
        deployments: one for each card, everything else about them equal.
        quantizations, cache_dtypes, ways: values of the engine's own inputs; None leaves the deployment's.
        lengths: of the longest request.
    """

    engine: Engine
    models: Sequence[Model]
    deployments: Sequence[Any]
    quantizations: Sequence[str | None] = (None,)
    cache_dtypes: Sequence[str | None] = (None,)
    ways: Sequence[int | None] = (None,)
    lengths: Sequence[int]
    workload: Workload = ONE_REQUEST

    @property
    def cells(self) -> int:
        """How many combinations there are."""
        count = len(self.models) * len(self.deployments) * len(self.quantizations) * len(self.cache_dtypes)
        return count * len(self.ways) * len(self.lengths)


class Cell(NamedTuple):
    """One combination; sizes in bytes on one GPU, as in `AtLength`.

    Args:
        verdict: "fits", "tight", "does_not_fit", "refused" or "unknown".
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
    quantization = (getattr(deployment, axes.quantization) if axes.quantization else None) or "as stored"
    cache = (getattr(deployment, axes.cache) if axes.cache else None) or "auto"
    try:
        prepared = grid.engine.prepare(model, deployment, grid.workload)
    except PlannerError as error:
        for length in grid.lengths:
            yield Cell(name, model.id, gpu, ways, quantization, cache, length, 0, 0, 0, 0, 0, "refused", str(error))
        return
    for length in grid.lengths:
        try:
            at = prepared.at(length)
        except PlannerError as error:
            at = AtLength(length, quantization, 0, 0, 0, 0, 0, "refused", str(error))
        yield Cell(
            name,
            model.id,
            gpu,
            ways,
            at.weights_as,
            cache,
            length,
            at.weights_bytes,
            at.bytes_per_token,
            at.cache_bytes,
            at.tokens,
            at.concurrency,
            at.verdict,
            at.reason,
        )
