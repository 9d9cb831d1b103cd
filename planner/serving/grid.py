"""Many plans at once: every combination of models, cards, formats, cache types, parallel sizes and contexts.

A cell is a serving plan of one stage. What depends on few of the axes is computed once: weights per (model, format,
parallelism), the budget per (that, card, batch), the cache layout per (model, cache type, parallelism, batch). A cell
itself is a handful of integer operations, and agrees with `plan_serving`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from planner.contract.component import SIDES
from planner.engines.vllm.budget.loading import converts_whole_model, load_of
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.pool.layout import Pool
from planner.engines.vllm.resolve import Resolved, batch_defaults, resolve
from planner.engines.vllm.stages import cache_format_of, outside_of, parallelism_of, pool_of, stages_of
from planner.engines.vllm.storage import scheme_for
from planner.errors import PlannerError
from planner.memory.kv_cache import LayerCache, sequence_cost
from planner.model.caches import CompressedCache, KeyValueCache
from planner.model.model import Model

_TOO_LONG: Final = "longer than the model's positions: vLLM refuses it without VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"


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


class Cell(NamedTuple):
    """One combination; sizes in bytes on one GPU.

    Args:
        weights_bytes: of the fullest GPU.
        bytes_per_token: growth of one sequence by a token at this length.
        kv_cache_bytes: what is left for the cache (0 when nothing is).
        tokens: what the engine prints.
        concurrency: requests of this length that the pool holds.
        verdict: "fits", "tight", "does_not_fit", or "refused".
        reason: why a refused cell could not be planned, or the engine would not start at this length.
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
class _Layout:
    """The pool, and how a sequence grows: the same at every length beyond the widest window."""

    pool: Pool
    caches: tuple[LayerCache, ...]
    settled: int
    settled_growth: int

    def growth(self, length: int) -> int:
        """Bytes of one further token at this length."""
        if length > self.settled:
            return self.settled_growth
        return sequence_cost(self.caches, length).bytes_per_token


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
    gpu, ways = deployment.gpu.name if deployment.gpu else "card", deployment.tensor_parallel_size
    label = deployment.quantization or "as stored"
    try:
        first = resolve(model, replace(deployment, max_model_len=axes.lengths[0]))
        label = scheme_for(model, first).label
        budgets = _budgets(model, deployment, first, axes.lengths)
    except PlannerError as error:
        for cache_dtype in axes.cache_dtypes:
            for length in axes.lengths:
                yield Cell(model.id, gpu, ways, label, cache_dtype, length, 0, 0, 0, 0, 0, "refused", str(error))
        return
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
        form = cache_format_of(model, cache_dtype, resolved.dtype, version=resolved.profile.version)
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
