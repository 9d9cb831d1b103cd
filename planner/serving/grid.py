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
<<<<<<< HEAD
    for cache_dtype in axes.cache_dtypes:
        layouts: dict[tuple[int, int], _Layout | str] = {}
        for length, (resolved, budget) in zip(axes.lengths, budgets, strict=True):
            # recurrent layers take a block as long as the longest request in some versions
            key = (resolved.max_num_batched_tokens, length if model.is_recurrent else 0)
            layout = layouts.get(key)
            if layout is None:
                exact = replace(resolved, max_model_len=length) if model.is_recurrent else resolved
                layout = layouts[key] = _layout(model, exact, cache_dtype)
            if isinstance(layout, str):
                yield Cell(
                    model.id, gpu, ways, label, cache_dtype, length, budget.weights, 0, 0, 0, 0, "refused", layout
                )
            else:
                allowed = length <= model.longest_request or deployment.allow_long_max_model_len
                yield _cell(model.id, gpu, ways, label, cache_dtype, length, budget, layout, axes.concurrency, allowed)


def _budgets(
    model: Model, deployment: Deployment, first: Resolved, lengths: Sequence[int]
) -> list[tuple[Resolved, _Budget]]:
    """The budget at each length; it changes only with the batch, MLA's prefill workspace, and images of a prompt."""
    found: dict[tuple[int, int, int], tuple[Resolved, _Budget]] = {}
    budgets = []
    for length in lengths:
        batch = batch_defaults(model, deployment, first.profile, first.gpu_memory_bytes, length)
        key = (*batch, length if model.has_latent_cache else _most_items(model, batch[0], length))
        if key not in found:
            resolved = resolve(model, replace(deployment, max_model_len=length))
            found[key] = (resolved, _budget(model, resolved))
        budgets.append(found[key])
    return budgets


def _most_items(model: Model, batched_tokens: int, length: int) -> int:
    """Items of a prompt of this length, as far as the profile run's batch can take more of them."""
    tokens = max((stack.tokens_per_item or 0 for stack in model.spec.stacks), default=0)
    return min(length // tokens, max(batched_tokens, tokens) // tokens) if tokens else 0


def _cell(
    model: str,
    gpu: str,
    ways: int,
    label: str,
    cache_dtype: str,
    length: int,
    budget: _Budget,
    layout: _Layout,
    wanted: int,
    allowed: bool,
) -> Cell:
    pool = layout.pool
    needed = pool.blocks_for(length)
    blocks = pool.num_blocks(budget.available[1])
    concurrency = blocks // needed if needed else 1 << 30
    verdict = "does_not_fit"
    usable = budget.available[1] - (pool.bytes_per_block if pool.reserves_null_block else 0)
    holds_one = usable >= pool.needed_bytes(length)
    if allowed and budget.starts and holds_one and concurrency >= wanted and budget.outside[1] >= 0:
        verdict = "tight"
        careful = pool.num_blocks(budget.available[2])
        if (not needed or careful // needed >= wanted) and budget.outside[2] >= 0 and budget.available[2] > 0:
            verdict = "fits"
    tokens = blocks // len(pool.groups) * pool.block_size if pool.groups else 0
    if pool.tokens_line == "concurrency" and needed:
        tokens = int(blocks / needed * length)
    else:
        tokens *= pool.options.context_parallel_size
    return Cell(
        model, gpu, ways, label, cache_dtype, length, budget.weights, layout.growth(length),
        max(0, budget.available[1]), tokens, concurrency, verdict, "" if allowed else _TOO_LONG,
    )  # fmt: skip


def _budget(model: Model, resolved: Resolved) -> _Budget:
    scheme = scheme_for(model, resolved)
    stage = stages_of(model, resolved, scheme, parallelism_of(model, resolved.asked))[0]
    weights = stage.component("weights")
    assert weights is not None
    outside, left = outside_of(resolved, stage)
    context = stage.component("context")
    free = resolved.gpu_memory_bytes - (context.best if context else 0) - outside.other_bytes
    loading = weights.best
    if converts_whole_model(model, resolved):
        parallelism = parallelism_of(model, resolved.asked)
        loading = max(loading, load_of(model, resolved, parallelism, stage, stages=1).gpu_peak_bytes)
    starts = loading <= free and not (resolved.profile.checks_free_memory and free < stage.requested_bytes)
    low, best, high = (stage.available(side) for side in SIDES)
    return _Budget(weights.best, (low, best, high), (left["low"], left["best"], left["high"]), starts)


def _layout(model: Model, resolved: Resolved, cache_dtype: str) -> _Layout | str:
    try:
        card = resolved.asked.gpu
        form = cache_format_of(
            model, cache_dtype, resolved.dtype, version=resolved.profile.version,
            capability=card.capability if card else None,
        )  # fmt: skip
        pool, caches = pool_of(model, resolved, form, slice(0, len(model.spec.layers)))
    except PlannerError as error:
        return str(error)
    windows = [
        cache.sliding_window or (cache.attention_chunk_size if isinstance(cache, KeyValueCache) else 0) or 0
        for cache in (entry.cache for entry in caches)
        if isinstance(cache, KeyValueCache | CompressedCache)
    ]
    settled = max(windows, default=0)
    return _Layout(pool, caches, settled, sequence_cost(caches, settled + 1).bytes_per_token)
=======
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
>>>>>>> main
