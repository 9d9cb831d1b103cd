"""Many plans at once: every combination of models, cards, formats, cache types, parallel sizes and contexts.

A cell is a serving plan of one stage. What depends on few of the axes is computed once: weights per (model, format,
parallelism), the budget per (that, card, batch), the cache layout per (model, cache type, parallelism, batch). A cell
itself is a handful of integer operations, and agrees with `plan_serving`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.errors import PlannerError
from planner.memory.component import SIDES
from planner.memory.kv_cache import LayerCache, sequence_cost
from planner.model.model import Model
from planner.serving.deployment import Deployment, Resolved, resolve
from planner.serving.kv_pool import Pool
from planner.serving.stages import cache_format_of, outside_of, parallelism_of, pool_of, stages_of
from planner.serving.storage import scheme_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What to combine. Every list must hold at least one value; None in `quantizations` is the checkpoint's own.

    Args:
        base: everything else about the deployment; its `gpu` is replaced by each of `gpus`.
        lengths: values of max_model_len.
        concurrency: requests that a cell must hold at its length to fit.
    """

    models: Sequence[Model]
    gpus: Sequence[Deployment]
    quantizations: Sequence[str | None]
    cache_dtypes: Sequence[str]
    tensor_parallel_sizes: Sequence[int]
    lengths: Sequence[int]
    concurrency: int = 1

    @property
    def cells(self) -> int:
        """How many combinations there are."""
        count = len(self.models) * len(self.gpus) * len(self.quantizations) * len(self.cache_dtypes)
        return count * len(self.tensor_parallel_sizes) * len(self.lengths)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination; sizes in bytes on one GPU.

    Args:
        weights_bytes: of the fullest GPU.
        bytes_per_token: growth of one sequence by a token at this length.
        kv_cache_bytes: what is left for the cache (0 when nothing is).
        tokens: what the engine prints.
        concurrency: requests of this length that the pool holds.
        verdict: "fits", "tight", "does_not_fit", or "refused".
        reason: why a refused cell could not be planned.
    """

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


@dataclass(frozen=True, slots=True)
class _Budget:
    weights: int
    available: tuple[int, int, int]
    outside: tuple[int, int, int]
    starts: bool


def compare_cells(axes: Axes) -> Iterator[Cell]:
    """Every cell, lengths innermost; a combination the planner refuses gives cells with verdict "refused"."""
    for model in axes.models:
        for card in axes.gpus:
            for ways in axes.tensor_parallel_sizes:
                for quantization in axes.quantizations:
                    deployment = replace(card, tensor_parallel_size=ways, quantization=quantization)
                    yield from _cells(model, deployment, axes)


def _cells(model: Model, deployment: Deployment, axes: Axes) -> Iterator[Cell]:
    gpu = deployment.gpu.name if deployment.gpu else "card"
    budgets: dict[tuple[int, int, int], _Budget] = {}
    by_length: list[tuple[int, Resolved, _Budget] | tuple[int, str]] = []
    label = deployment.quantization or "as stored"
    for length in axes.lengths:
        try:
            resolved = resolve(model, replace(deployment, max_model_len=length))
            key = (resolved.max_num_batched_tokens, resolved.max_num_seqs, length if model.has_latent_cache else 0)
            if key not in budgets:
                budgets[key] = _budget(model, resolved)
            label = scheme_for(model, resolved).label
            by_length.append((length, resolved, budgets[key]))
        except PlannerError as error:
            by_length.append((length, str(error)))
    for cache_dtype in axes.cache_dtypes:
        pools: dict[int, tuple[Pool, tuple[LayerCache, ...]] | str] = {}
        for entry in by_length:
            length = entry[0]
            if len(entry) == 2:
                yield Cell(model.id, gpu, deployment.tensor_parallel_size, label, cache_dtype, length, 0, 0, 0, 0, 0,
                           "refused", entry[1])  # fmt: skip
                continue
            _, resolved, budget = entry
            batch = resolved.max_num_batched_tokens
            if batch not in pools:
                pools[batch] = _layout(model, resolved, cache_dtype)
            layout = pools[batch]
            if isinstance(layout, str):
                yield Cell(model.id, gpu, deployment.tensor_parallel_size, label, cache_dtype, length, budget.weights,
                           0, 0, 0, 0, "refused", layout)  # fmt: skip
                continue
            pool, caches = layout
            growth = _growth(caches, length)
            yield _cell(model, deployment, gpu, label, cache_dtype, length, budget, pool, growth, axes.concurrency)


def _cell(
    model: Model,
    deployment: Deployment,
    gpu: str,
    label: str,
    cache_dtype: str,
    length: int,
    budget: _Budget,
    pool: Pool,
    growth: int,
    wanted: int,
) -> Cell:
    needed = pool.blocks_for(length)
    best, high = pool.num_blocks(budget.available[1]), pool.num_blocks(budget.available[2])
    concurrency = best // needed if needed else 1 << 30
    verdict = "does_not_fit"
    usable = budget.available[1] - (pool.bytes_per_block if pool.reserves_null_block else 0)
    if (
        budget.starts
        and concurrency >= max(wanted, 1)
        and budget.outside[1] >= 0
        and usable >= pool.needed_bytes(length)
    ):
        verdict = "tight"
        if (not needed or high // needed >= wanted) and budget.outside[2] >= 0 and budget.available[2] > 0:
            verdict = "fits"
    tokens = best // len(pool.groups) * pool.block_size if pool.groups else 0
    if pool.tokens_line == "concurrency" and needed:
        tokens = best * length // needed
    return Cell(
        model.id,
        gpu,
        deployment.tensor_parallel_size,
        label,
        cache_dtype,
        length,
        budget.weights,
        growth,
        max(0, budget.available[1]),
        tokens * pool.options.context_parallel_size,
        concurrency,
        verdict,
    )


def _growth(caches: tuple[LayerCache, ...], length: int) -> int:
    return sequence_cost(caches, length).bytes_per_token


def _budget(model: Model, resolved: Resolved) -> _Budget:
    scheme = scheme_for(model, resolved)
    stage = stages_of(model, resolved, scheme, parallelism_of(model, resolved.asked))[0]
    weights = stage.component("weights")
    assert weights is not None
    outside, left = outside_of(resolved, stage)
    free = resolved.gpu_memory_bytes - outside.context_bytes - outside.other_bytes
    starts = weights.best <= free and not (resolved.profile.checks_free_memory and free < stage.requested_bytes)
    low, best, high = (stage.available(side) for side in SIDES)
    return _Budget(weights.best, (low, best, high), (left["low"], left["best"], left["high"]), starts)


def _layout(model: Model, resolved: Resolved, cache_dtype: str) -> tuple[Pool, tuple[LayerCache, ...]] | str:
    try:
        form = cache_format_of(model, cache_dtype, resolved.dtype)
        return pool_of(model, resolved, form, slice(0, len(model.spec.layers)))
    except PlannerError as error:
        return str(error)
