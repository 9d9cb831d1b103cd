"""The verdict on a deployment: does the engine start, does its pool hold the requests, does the rest of the card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.contract.component import SIDES, Side
from planner.contract.plan import StartupError, Verdict
from planner.contract.workload import Workload
from planner.engines.vllm.budget.budget import StageBudget
from planner.engines.vllm.budget.loading import converts_whole_model, load_of
from planner.engines.vllm.outcome import startup
from planner.engines.vllm.outcome.tightness import why_tight
from planner.engines.vllm.pool.layout import Pool
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.stages import Outside, outside_of
from planner.memory.parallel.sharding import Parallelism
from planner.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict with what it stands on.

    Args:
        outside: the rest of the fullest stage's card.
        free_bytes: what each stage's card keeps.
    """

    verdict: Verdict
    shortfall_bytes: int
    startup_error: StartupError | None
    unknown: tuple[str, ...]
    outside: Outside
    free_bytes: tuple[int, ...]
    notes: tuple[str, ...]


def judge(
    model: Model,
    resolved: Resolved,
    workload: Workload,
    parallelism: Parallelism,
    stages: Sequence[StageBudget],
    pools: Sequence[Pool],
    *,
    check_pool: Pool,
    available: dict[Side, list[int]],
    blocks: dict[Side, int],
    fullest: int,
) -> Judged:
    """Fits, tight, does not fit, refused or unknown.

    Args:
        check_pool: the layout that the engine's own capacity check counts with.
        available: bytes left for the cache on each stage, with every component at that side.
        blocks: what the smallest of the pools holds at that side.
        fullest: index of the stage that decides.
    """
    rests = [
        outside_of(resolved, stage, fixed=_fixed(resolved, pool)) for stage, pool in zip(stages, pools, strict=True)
    ]
    # the rest of the card must hold what lives there on every stage
    outside_free = {side: min(left[side] for _, left in rests) for side in SIDES}
    crowded = min(rests, key=lambda rest: rest[1]["best"])[0]
    pool, best = pools[fullest], available["best"][fullest]
    error = refusal(model, resolved) or startup_error(
        resolved,
        stages[fullest],
        check_pool,
        best,
        blocks["best"],
        crowded,
        loading_bytes=loading_bytes(model, resolved, parallelism, stages[fullest], stages=len(stages)),
    )
    admission = workload.admission
    asked_length = min(admission[1], resolved.max_model_len) if admission else resolved.max_model_len
    too_long = admission is not None and admission[1] > resolved.max_model_len
    held = {side: pool.requests(count, asked_length) for side, count in blocks.items()}
    wanted = workload.concurrency
    verdict = decide(
        refused=(error is not None and error.refused) or (error is None and too_long),
        starts=error is None,
        held=(held["best"], held["high"]),
        wanted=wanted,
        outside_free=(outside_free["best"], outside_free["high"]),
        left_high=available["high"][fullest],
        unknown=bool(resolved.unknown),
    )
    notes = [why_tight(outside_free["high"], requests=held["high"], wanted=wanted)] if verdict == "tight" else []
    shortfall = 0
    if verdict == "does_not_fit":
        needed = pool.blocks_for(asked_length) * wanted * pool.bytes_per_block
        if error is not None and error.kind == "request_too_long":
            needed = max(needed, pool.needed_bytes(resolved.max_model_len) + _null_block(pool))
        shortfall = max(0, needed - best, -outside_free["best"])
        if error is not None and error.kind == "free_memory":
            outside = rests[fullest][0]
            free = outside.driver_total_bytes - outside.context_bytes - outside.other_bytes
            shortfall = max(shortfall, stages[fullest].requested_bytes - free)
    return Judged(
        verdict=verdict,
        shortfall_bytes=shortfall,
        startup_error=error,
        unknown=resolved.unknown if verdict == "unknown" else (),
        outside=rests[fullest][0],
        free_bytes=tuple(outside.free_bytes for outside, _ in rests),
        notes=tuple(notes),
    )


def decide(
    *,
    refused: bool,
    starts: bool,
    held: tuple[int, int],
    wanted: int,
    outside_free: tuple[int, int],
    left_high: int,
    unknown: bool,
) -> Verdict:
    """The one rule of the verdict; pairs are (at best estimates, with every term at its high end).

    Args:
        held: requests of the asked length in the pool; outside_free: bytes left on the fullest card.
        left_high: bytes left for the cache at the high end.
    """
    if refused:
        return "refused"
    if not starts or held[0] < wanted or outside_free[0] < 0:
        return "does_not_fit"
    if unknown:
        return "unknown"
    return "fits" if held[1] >= wanted and outside_free[1] >= 0 and left_high > 0 else "tight"


def _fixed(resolved: Resolved, pool: Pool) -> int | None:
    blocks = resolved.asked.num_gpu_blocks_override
    return resolved.asked.kv_cache_memory_bytes if blocks is None else blocks * pool.bytes_per_block


def _null_block(pool: Pool) -> int:
    return pool.bytes_per_block if pool.reserves_null_block else 0


def refusal(model: Model, resolved: Resolved) -> StartupError | None:
    """What the engine refuses whatever the memory; it looks at the length before anything else."""
    card = resolved.asked.gpu
    if card is not None and card.vendor == "Apple":
        return startup.no_engine(card.name)
    if resolved.max_model_len <= resolved.positions or resolved.asked.allow_long_max_model_len:
        return None
    return startup.beyond_positions(resolved.max_model_len, resolved.positions)


def loading_bytes(
    model: Model, resolved: Resolved, parallelism: Parallelism, stage: StageBudget, *, stages: int
) -> int:
    """What has to be free while the weights are loaded, in bytes on the stage's fullest GPU."""
    weights = stage.component("weights")
    assert weights is not None
    if not converts_whole_model(model, resolved):
        return weights.best
    return max(weights.best, load_of(model, resolved, parallelism, stage, stages=stages).gpu_peak_bytes)


def startup_error(
    resolved: Resolved,
    stage: StageBudget,
    pool: Pool,
    available: int,
    blocks: int,
    outside: Outside,
    *,
    loading_bytes: int,
) -> StartupError | None:
    """What the engine stops with for want of memory, in its own words.

    Args:
        available: bytes left for the cache; blocks: what the pools hold of it.
        outside: the rest of the fullest card.
    """
    profile, total = resolved.profile, resolved.gpu_memory_bytes
    free = free_at_start(stage, total, outside)
    kind = shortage(
        checks_free_memory=profile.checks_free_memory,
        free=free,
        requested=stage.requested_bytes,
        loading=loading_bytes,
        pool=pool,
        available=available,
        blocks=blocks,
        needed=pool.needed_bytes(resolved.max_model_len),
        outside_free=outside.free_bytes,
    )
    if kind == "free_memory":
        return startup.free_memory(
            profile,
            free_bytes=free,
            total_bytes=total,
            utilization=resolved.gpu_memory_utilization,
            requested_bytes=stage.requested_bytes,
        )
    if kind == "weights":
        return startup.weights_too_large(profile, needed_bytes=loading_bytes, free_bytes=free)
    if kind == "no_cache_blocks":
        return startup.no_cache_blocks(profile)
    if kind == "request_too_long":
        usable = available - _null_block(pool)
        return startup.request_too_long(
            profile,
            max_model_len=resolved.max_model_len,
            needed_bytes=pool.needed_bytes(resolved.max_model_len),
            available_bytes=usable,
            longest=pool.longest_length(usable, ceiling=resolved.max_model_len),
            pool_tokens=blocks * pool.block_size,
        )
    if kind == "outside_budget":
        left = outside.free_bytes + outside.cuda_graph_bytes + outside.post_profile_bytes
        return startup.outside_budget(short_bytes=-outside.free_bytes, left_bytes=left)
    return None


def free_at_start(stage: StageBudget, total_bytes: int, outside: Outside) -> int:
    """Bytes that the driver calls free when the engine first looks."""
    context = stage.component("context")
    return total_bytes - (context.best if context else 0) - outside.other_bytes


def shortage(
    *,
    checks_free_memory: bool,
    free: int,
    requested: int,
    loading: int,
    pool: Pool,
    available: int,
    blocks: int,
    needed: int,
    outside_free: int,
) -> str:
    """The first want of memory in the order in which the engine looks; "" where it starts. Sizes in bytes."""
    if checks_free_memory and free < requested:
        return "free_memory"
    if loading > free:
        return "weights"
    if not pool.groups:
        return ""
    usable = available - _null_block(pool)
    if usable <= 0 or blocks < 1:
        return "no_cache_blocks"
    if needed > usable:
        return "request_too_long"
    return "outside_budget" if outside_free < 0 else ""
