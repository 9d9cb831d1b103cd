"""The serving plan: from a model and a deployment to budget, cache, concurrency and verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from planner.contract.component import SIDES, Side
from planner.contract.lengths import Lengths, admission_point, refused_note, request_lengths
from planner.engines.vllm import startup
from planner.engines.vllm.budget.budget import StageBudget
from planner.engines.vllm.budget.loading import Load, converts_whole_model, load_notes, load_of
from planner.engines.vllm.deployment import Deployment, Resolved, resolve
from planner.engines.vllm.pool.layout import Pool
from planner.engines.vllm.stages import (
    Outside,
    cache_format_of,
    outside_of,
    parallelism_of,
    pool_of,
    stages_of,
    utilization_of,
)
from planner.engines.vllm.startup import StartupError
from planner.engines.vllm.storage import scheme_for
from planner.engines.vllm.tightness import why_tight
from planner.memory.cache_formats import CacheFormat
from planner.memory.kv_cache import LayerCache, SequenceCost, sequence_cost
from planner.memory.quantisation import WeightScheme
from planner.memory.sharding import Parallelism
from planner.model.model import Model
from planner.units import format_size

Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPoint:
    """How many requests fit when all have this length; none where the server refuses so long a request."""

    at: str
    tokens_per_request: int
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """The answer to "will it serve, and how many at once".

    Everything is per GPU of the fullest rank unless its name says otherwise; sizes in bytes.

    Args:
        stages: budgets of every distinct rank (pipeline stage), in order.
        fullest: index of the one that decides.
        utilization: the fraction that realises the plan (the safety margin lowers it).
        kv_cache_bytes: what is left for the cache.
        kv_cache_low_bytes, kv_cache_high_bytes: the same with every component high, and low.
        num_blocks, kv_tokens, max_concurrency: what the engine prints.
        sequence: logical cost of one sequence at max_model_len.
        longest: max_model_len that fits at the asked concurrency.
        check_pool: the layout that the capacity check counts with: the stage's, or the whole model's (0.14 to 0.16).
        needed_bytes: what one request of max_model_len reserves there.
    """

    model: Model
    resolved: Resolved
    scheme: WeightScheme
    parallelism: Parallelism
    cache_format: CacheFormat
    stages: tuple[StageBudget, ...]
    fullest: int
    utilization: float
    pool: Pool
    check_pool: Pool
    kv_cache_bytes: int
    kv_cache_low_bytes: int
    kv_cache_high_bytes: int
    num_blocks: int
    kv_tokens: int
    max_concurrency: float
    sequence: SequenceCost
    caches: tuple[LayerCache, ...]
    longest: int
    needed_bytes: int
    outside: Outside
    workload: tuple[WorkloadPoint, ...]
    load: Load
    verdict: Verdict
    shortfall_bytes: int
    startup_error: StartupError | None
    notes: tuple[str, ...]

    @property
    def budget(self) -> StageBudget:
        """The fullest stage's budget."""
        return self.stages[self.fullest]

    def free_bytes(self, index: int) -> int:
        """What is left on a card of that stage, at best estimates."""
        return outside_of(self.resolved, self.stages[index], fixed=_fixed(self.resolved, self.pool))[0].free_bytes


def plan_serving(
    model: Model,
    deployment: Deployment,
    *,
    input_lengths: Lengths | None = None,
    output_lengths: Lengths | None = None,
    notes: tuple[str, ...] = (),
) -> ServingPlan:
    """Plan one deployment.

    Args:
        input_lengths, output_lengths: the real workload, when the question is not max_model_len alone.
        notes: what the caller wants said with the plan.

    Raises:
        UsageError: options out of range, contradictory, or refused by the engine; names the option.
        UnsupportedQuantization: a storage format that is not understood.
    """
    if deployment.max_model_len == -1:
        deployment, fitted = _auto_fit(model, deployment)
        notes += fitted
    resolved = resolve(model, deployment)
    scheme = scheme_for(model, resolved)
    parallelism = parallelism_of(model, deployment)
    form = cache_format_of(
        model, deployment.kv_cache_dtype, resolved.dtype, version=resolved.profile.version,
        capability=deployment.gpu.capability if deployment.gpu else None,
    )  # fmt: skip
    stages = stages_of(model, resolved, scheme, parallelism)
    pools = [pool_of(model, resolved, form, stage.layers) for stage in stages]
    availables = {
        side: [_available(resolved, stage, pool, side) for stage, (pool, _) in zip(stages, pools, strict=True)]
        for side in SIDES
    }
    blocks = {
        side: min(pool.num_blocks(size) for (pool, _), size in zip(pools, sizes, strict=True))
        for side, sizes in availables.items()
    }
    best = availables["best"]
    fullest = min(range(len(stages)), key=lambda index: (pools[index][0].num_blocks(best[index]), best[index]))
    pool, caches = pools[fullest]
    check_pool = pool
    if resolved.profile.capacity_check == "global_groups" and len(stages) > 1:
        check_pool = pool_of(model, resolved, form, slice(0, len(model.spec.layers)))[0]
    points = request_lengths(input_lengths, output_lengths)
    said = [*notes, *model.spec.notes, *model.notes, *resolved.notes, *scheme.notes]
    if deployment.quantization is not None and model.spec.quantization_config is not None:
        said.append(f"already quantised ({scheme.label}): planned as it is, without --quantization")
    refused = refused_note(points, resolved.max_model_len, model.longest_request)
    if refused is not None:
        said.append(refused)
    if deployment.already_used_bytes:
        said.append(
            f"others hold {format_size(deployment.already_used_bytes)} of each card (--already-used, --instances): the"
            " engine has no flag for that, so the command does not say it"
        )
    if any(name == "mean" for name, _ in points):
        said.append("the mean is no admission limit: half the time more tokens are wanted than it says")
    if deployment.concurrency > resolved.max_num_seqs:
        said.append(f"max_num_seqs lets {resolved.max_num_seqs:,} of {deployment.concurrency:,} requests run at once")
    admission = admission_point(points)
    asked_length = min(admission[1], resolved.max_model_len) if admission else resolved.max_model_len
    rests = [outside_of(resolved, stage, fixed=_fixed(resolved, pools[index][0])) for index, stage in enumerate(stages)]
    outside = rests[fullest][0]
    # the rest of the card must hold what lives there on every stage
    outside_free = {side: min(left[side] for _, left in rests) for side in SIDES}
    crowded = min(rests, key=lambda rest: rest[1]["best"])[0]
    load = load_of(model, resolved, parallelism, stages[fullest], stages=len(stages))
    said += load_notes(model, resolved, load)
    loading = load.gpu_peak_bytes if converts_whole_model(model, resolved) else 0
    error = _refused_length(model, resolved) or _startup_error(
        resolved, stages[fullest], check_pool, best[fullest], blocks["best"], crowded, loading=loading
    )
    held = {side: _requests(pool, count, asked_length) for side, count in blocks.items()}
    concurrency = deployment.concurrency
    verdict: Verdict = "does_not_fit"
    serves = admission is None or admission[1] <= resolved.max_model_len
    if error is None and serves and held["best"] >= concurrency and outside_free["best"] >= 0:
        verdict = "tight"
        if held["high"] >= concurrency and outside_free["high"] >= 0 and availables["high"][fullest] > 0:
            verdict = "fits"
        else:
            said.append(why_tight(outside_free["high"], requests=held["high"], wanted=concurrency))
    shortfall = 0
    if verdict == "does_not_fit":
        wanted = pool.blocks_for(asked_length) * concurrency * pool.bytes_per_block
        if error is not None and error.kind == "request_too_long":
            wanted = max(wanted, pool.needed_bytes(resolved.max_model_len) + _null_block(pool))
        shortfall = max(0, wanted - best[fullest], -outside_free["best"])
        if error is not None and error.kind == "free_memory":
            free = outside.driver_total_bytes - outside.context_bytes - outside.other_bytes
            shortfall = max(shortfall, stages[fullest].requested_bytes - free)
    return ServingPlan(
        model=model,
        resolved=resolved,
        scheme=scheme,
        parallelism=parallelism,
        cache_format=form,
        stages=stages,
        fullest=fullest,
        utilization=utilization_of(resolved),
        pool=pool,
        check_pool=check_pool,
        kv_cache_bytes=max(0, best[fullest]),
        kv_cache_low_bytes=max(0, availables["high"][fullest]),
        kv_cache_high_bytes=max(0, availables["low"][fullest]),
        num_blocks=blocks["best"],
        kv_tokens=pool.tokens(blocks["best"]),
        max_concurrency=pool.max_concurrency(blocks["best"]),
        sequence=sequence_cost(caches, resolved.max_model_len),
        caches=caches,
        longest=pool.longest_length(best[fullest], requests=concurrency),
        needed_bytes=check_pool.needed_bytes(resolved.max_model_len),
        outside=outside,
        workload=_workload(resolved, pool, blocks["best"], points),
        load=load,
        verdict=verdict,
        shortfall_bytes=shortfall,
        startup_error=error,
        notes=tuple(dict.fromkeys(said)),
    )


def _auto_fit(model: Model, deployment: Deployment) -> tuple[Deployment, tuple[str, ...]]:
    """max_model_len = -1 (vLLM 0.14+): the longest request that one pool holds, at most what the model was made for.

    Where not even one token fits, the model's own length is planned, which then does not fit.
    """
    whole = replace(deployment, max_model_len=None)
    plan = plan_serving(model, replace(whole, concurrency=1))
    longest = min(plan.longest, plan.resolved.max_model_len)
    if longest < 1:
        return whole, ("vLLM would print: Cannot auto-fit max_model_len: not enough GPU memory available to serve even"
                       " a single token.",)  # fmt: skip
    note = f"max_model_len was fitted: {longest:,} of the model's {plan.resolved.max_model_len:,}"
    return replace(deployment, max_model_len=longest), (note,)


def _requests(pool: Pool, blocks: int, length: int) -> int:
    needed = pool.blocks_for(length)
    return blocks // needed if needed else 1 << 30


def _workload(resolved: Resolved, pool: Pool, blocks: int, points: list[tuple[str, int]]) -> tuple[WorkloadPoint, ...]:
    longest = resolved.max_model_len
    cap = resolved.max_num_seqs
    return tuple(
        WorkloadPoint(
            at=name,
            tokens_per_request=length,
            concurrency=min(_requests(pool, blocks, length), cap) if length <= longest else 0,
        )
        for name, length in [("max_model_len", longest), *points]
    )


def _fixed(resolved: Resolved, pool: Pool) -> int | None:
    """Bytes of the pool where the user states them, or the number of blocks, instead of the fraction."""
    blocks = resolved.asked.num_gpu_blocks_override
    return resolved.asked.kv_cache_memory_bytes if blocks is None else blocks * pool.bytes_per_block


def _available(resolved: Resolved, stage: StageBudget, pool: Pool, side: Side) -> int:
    fixed = _fixed(resolved, pool)
    return stage.available(side) if fixed is None else fixed


def _null_block(pool: Pool) -> int:
    return pool.bytes_per_block if pool.reserves_null_block else 0


def _refused_length(model: Model, resolved: Resolved) -> StartupError | None:
    """vLLM looks at the length before anything else."""
    if resolved.max_model_len <= model.longest_request or resolved.asked.allow_long_max_model_len:
        return None
    return startup.beyond_positions(resolved.max_model_len, model.longest_request)


def _startup_error(
    resolved: Resolved, stage: StageBudget, pool: Pool, available: int, blocks: int, outside: Outside, *, loading: int
) -> StartupError | None:
    profile, total = resolved.profile, resolved.gpu_memory_bytes
    weights = stage.component("weights")
    assert weights is not None
    context = stage.component("context")
    free = total - (context.best if context else 0) - outside.other_bytes
    if profile.checks_free_memory and free < stage.requested_bytes:
        return startup.free_memory(
            profile,
            free_bytes=free,
            total_bytes=total,
            utilization=resolved.gpu_memory_utilization,
            requested_bytes=stage.requested_bytes,
        )
    loading = max(loading, weights.best)
    if loading > free:
        return startup.weights_too_large(profile, needed_bytes=loading, free_bytes=free)
    if not pool.groups:
        return None
    usable = available - _null_block(pool)
    if usable <= 0 or blocks < 1:
        return startup.no_cache_blocks(profile)
    needed = pool.needed_bytes(resolved.max_model_len)
    if needed > usable:
        return startup.request_too_long(
            profile,
            max_model_len=resolved.max_model_len,
            needed_bytes=needed,
            available_bytes=usable,
            longest=pool.longest_length(usable, ceiling=resolved.max_model_len),
            pool_tokens=blocks * pool.block_size,
        )
    if outside.free_bytes < 0:
        left = outside.free_bytes + outside.cuda_graph_bytes + outside.post_profile_bytes
        return startup.outside_budget(short_bytes=-outside.free_bytes, left_bytes=left)
    return None


def with_changes(deployment: Deployment, **changes: object) -> Deployment:
    """The deployment with some inputs changed (for levers and comparisons)."""
    return replace(deployment, **changes)  # type: ignore[arg-type]
