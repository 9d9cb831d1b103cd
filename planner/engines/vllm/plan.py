"""The serving plan: from a model and a deployment to budget, cache, concurrency and verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.contract.component import SIDES, Side
from planner.contract.inputs import check
from planner.contract.lengths import refused_note
from planner.contract.plan import Cache, Device, ServingPlan, WorkloadPoint
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.vllm.budget.budget import StageBudget
from planner.engines.vllm.budget.loading import load_notes, load_of
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.model.storage import scheme_for
from planner.engines.vllm.outcome.verdict import judge
from planner.engines.vllm.pool.layout import Pool
from planner.engines.vllm.resolve import Resolved, resolve
from planner.engines.vllm.stages import (
    Outside,
    form_of,
    outside_of,
    parallelism_of,
    pool_of,
    stages_of,
    utilization_of,
)
from planner.memory.cache.formats import CacheFormat
from planner.memory.cache.kv_cache import LayerCache, SequenceCost, layer_caches, sequence_cost
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import WeightScheme
from planner.memory.work import StageWork, Work
from planner.model.model import Model
from planner.units import format_size

ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VllmPlan(ServingPlan):
    """A serving plan with vLLM's stages and block pool.

    Everything is per GPU of the fullest rank unless its name says otherwise; sizes in bytes.

    Args:
        stages: budgets of every distinct rank (pipeline stage), in order.
        fullest: index of the one that decides.
        utilization: the fraction that realises the plan (the safety margin lowers it).
        kv_cache_bytes: what is left for the cache.
        kv_cache_low_bytes, kv_cache_high_bytes: the same with every component high, and low.
        num_blocks: what the engine prints.
        sequence: logical cost of one sequence at max_model_len.
        check_pool: the layout that the capacity check counts with: the stage's, or the whole model's (0.14 to 0.16).
        needed_bytes: what one request of max_model_len reserves there.
    """

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
    sequence: SequenceCost
    caches: tuple[LayerCache, ...]
    needed_bytes: int
    outside: Outside

    @property
    def budget(self) -> StageBudget:
        """The fullest stage's budget."""
        return self.stages[self.fullest]

    @property
    def kv_tokens(self) -> int:
        """Tokens that the engine says its pool holds."""
        return self.cache.tokens or 0

    @property
    def max_concurrency(self) -> float:
        """Requests of max_model_len that the engine says its pool holds."""
        return self.cache.max_concurrency

    @property
    def longest(self) -> int:
        """The longest request that fits at the asked concurrency, never beyond what the model accepts."""
        return self.cache.longest

    @property
    def work(self) -> Work:
        """What a step reads and multiplies."""
        ways, asked = self.parallelism.tensor_parallel_size, self.resolved.asked
        return Work(
            ways=ways,
            element_bytes=self.resolved.element_bytes,
            scheme=self.scheme,
            graphs=not asked.enforce_eager,
            stages=tuple(
                StageWork(
                    layers=stage.layers,
                    weights=stage.weights.by_role,
                    caches=layer_caches(
                        self.model.spec.layers[stage.layers],
                        self.cache_format,
                        tensor_parallel_size=ways,
                        state_dtype=self.resolved.dtype,
                        recurrent_dtype=asked.mamba_ssm_cache_dtype,
                    ),
                )
                for stage in self.stages
            ),
        )

    def free_bytes(self, index: int) -> int:
        """What is left on a card of that stage, at best estimates."""
        return outside_of(self.resolved, self.stages[index], fixed=fixed_bytes(self.resolved, self.pool))[0].free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """Every stage with its pool, and what the fraction leaves it at each side."""

    budgets: tuple[StageBudget, ...]
    pools: tuple[tuple[Pool, tuple[LayerCache, ...]], ...]
    available: dict[Side, list[int]]
    blocks: dict[Side, int]
    fullest: int
    check_pool: Pool


def plan_one(
    model: Model, deployment: Deployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> VllmPlan:
    """Plan one deployment of one instance.

    Args:
        notes: what the caller wants said with the plan.

    Raises:
        UsageError: options out of range, contradictory, or refused by the engine; names the option.
        UnsupportedQuantization: a storage format that is not understood.
    """
    check(workload)
    if deployment.max_model_len == -1:
        deployment, fitted = _auto_fit(model, deployment)
        notes += fitted
    resolved = resolve(model, deployment)
    scheme = scheme_for(model, resolved)
    parallelism = parallelism_of(model, deployment)
    form = form_of(model, resolved)
    staged = _staged(model, resolved, scheme, parallelism, form)
    judged = judge(
        model,
        resolved,
        workload,
        parallelism,
        staged.budgets,
        [pool for pool, _ in staged.pools],
        check_pool=staged.check_pool,
        available=staged.available,
        blocks=staged.blocks,
        fullest=staged.fullest,
    )
    pool, caches = staged.pools[staged.fullest]
    load = load_of(model, resolved, parallelism, staged.budgets[staged.fullest], stages=len(staged.budgets))
    said = [*notes, *_notes(model, resolved, scheme, workload), *load_notes(model, resolved, load), *judged.notes]
    best = staged.available["best"][staged.fullest]
    blocks, sequence = staged.blocks["best"], sequence_cost(caches, resolved.max_model_len)
    return VllmPlan(
        model=model,
        deployment=deployment,
        workload=workload,
        engine=ENGINE,
        engine_version=resolved.profile.version,
        resolved=resolved,
        scheme=scheme,
        parallelism=parallelism,
        cache_format=form,
        stages=staged.budgets,
        fullest=staged.fullest,
        utilization=utilization_of(resolved),
        pool=pool,
        check_pool=staged.check_pool,
        kv_cache_bytes=max(0, best),
        kv_cache_low_bytes=max(0, staged.available["high"][staged.fullest]),
        kv_cache_high_bytes=max(0, staged.available["low"][staged.fullest]),
        num_blocks=blocks,
        sequence=sequence,
        caches=caches,
        needed_bytes=staged.check_pool.needed_bytes(resolved.max_model_len),
        outside=judged.outside,
        devices=_devices(resolved, parallelism, staged, judged.free_bytes, load.host_bytes),
        cache=_cache(resolved, pool, blocks, sequence, best, workload),
        max_model_len=resolved.max_model_len,
        positions=resolved.positions,
        points=_points(resolved, pool, blocks, workload),
        load=load,
        verdict=judged.verdict,
        shortfall_bytes=judged.shortfall_bytes,
        startup_error=judged.startup_error,
        unknown=judged.unknown,
        notes=tuple(dict.fromkeys(said)),
    )


def _cache(resolved: Resolved, pool: Pool, blocks: int, sequence: SequenceCost, best: int, workload: Workload) -> Cache:
    return Cache(
        bytes_per_token=sequence.bytes_per_token,
        bytes_per_sequence=sequence.total_bytes,
        window_bytes_per_sequence=sequence.window_bytes,
        state_bytes_per_sequence=sequence.state_bytes,
        reserved_bytes=max(0, best),
        tokens=pool.tokens(blocks) if pool.groups else None,
        max_concurrency=pool.max_concurrency(blocks),
        request_bytes=pool.blocks_for(_admission_length(resolved, workload)) * pool.bytes_per_block,
        longest=_longest(resolved, pool, best, workload.concurrency),
    )


def _staged(
    model: Model, resolved: Resolved, scheme: WeightScheme, parallelism: Parallelism, form: CacheFormat
) -> _Stages:
    budgets = stages_of(model, resolved, scheme, parallelism)
    pools = tuple(pool_of(model, resolved, form, stage.layers) for stage in budgets)
    available = {
        side: [_available(resolved, stage, pool, side) for stage, (pool, _) in zip(budgets, pools, strict=True)]
        for side in SIDES
    }
    blocks = {
        side: min(pool.num_blocks(size) for (pool, _), size in zip(pools, sizes, strict=True))
        for side, sizes in available.items()
    }
    best = available["best"]
    fullest = min(range(len(budgets)), key=lambda index: (pools[index][0].num_blocks(best[index]), best[index]))
    check_pool = pools[fullest][0]
    if resolved.profile.capacity_check == "global_groups" and len(budgets) > 1:
        check_pool = pool_of(model, resolved, form, slice(0, len(model.spec.layers)))[0]
    return _Stages(
        budgets=budgets, pools=pools, available=available, blocks=blocks, fullest=fullest, check_pool=check_pool
    )


def _notes(model: Model, resolved: Resolved, scheme: WeightScheme, workload: Workload) -> list[str]:
    deployment = resolved.asked
    said = [*(deployment.gpu.notes if deployment.gpu else ()), *model.spec.notes, *model.notes]
    said += [*resolved.notes, *scheme.notes]
    if deployment.quantization is not None and model.spec.quantization_config is not None:
        said.append(f"already quantised ({scheme.label}): planned as it is, without --quantization")
    points = workload.points
    refused = refused_note(points, resolved.max_model_len, resolved.positions)
    if refused is not None:
        said.append(refused)
    if deployment.already_used_bytes:
        said.append(
            f"others hold {format_size(deployment.already_used_bytes)} of each card (--already-used, --instances): the"
            " engine has no flag for that, so the command does not say it"
        )
    if any(name == "mean" for name, _ in points):
        said.append("the mean is no admission limit: half the time more tokens are wanted than it says")
    if workload.concurrency > resolved.max_num_seqs:
        said.append(f"max_num_seqs lets {resolved.max_num_seqs:,} of {workload.concurrency:,} requests run at once")
    return said


def _auto_fit(model: Model, deployment: Deployment) -> tuple[Deployment, tuple[str, ...]]:
    """max_model_len = -1 (vLLM 0.14+): the longest request that one pool holds, at most what the model was made for.

    Where not even one token fits, the model's own length is planned, which then does not fit.
    """
    whole = replace(deployment, max_model_len=None)
    plan = plan_one(model, whole)
    longest = min(plan.longest, plan.resolved.max_model_len)
    if longest < 1:
        return whole, (
            "vLLM would print: Cannot auto-fit max_model_len: not enough GPU memory available to serve even"
            " a single token.",
        )
    note = f"max_model_len was fitted: {longest:,} of the model's {plan.resolved.max_model_len:,}"
    return replace(deployment, max_model_len=longest), (note,)


def _admission_length(resolved: Resolved, workload: Workload) -> int:
    """Tokens of the request that admission is planned at."""
    admission = workload.admission
    return min(admission[1], resolved.max_model_len) if admission else resolved.max_model_len


def _longest(resolved: Resolved, pool: Pool, available: int, requests: int) -> int:
    if resolved.asked.allow_long_max_model_len:
        return pool.longest_length(available, requests=requests)
    return pool.longest_length(available, requests=requests, ceiling=resolved.positions)


def _points(resolved: Resolved, pool: Pool, blocks: int, workload: Workload) -> tuple[WorkloadPoint, ...]:
    longest, cap = resolved.max_model_len, resolved.max_num_seqs
    return tuple(
        WorkloadPoint(
            at=name,
            tokens_per_request=length,
            concurrency=min(pool.requests(blocks, length), cap) if length <= longest else 0,
        )
        for name, length in [("max_model_len", longest), *workload.points]
    )


def _devices(
    resolved: Resolved, parallelism: Parallelism, staged: _Stages, free_bytes: tuple[int, ...], host_bytes: int
) -> tuple[Device, ...]:
    """Each stage's fullest GPU, the fullest first, and the host where something is kept there."""
    asked = resolved.asked
    ranks = parallelism.tensor_parallel_size * asked.data_parallel_size
    order = sorted(range(len(staged.budgets)), key=lambda index: index != staged.fullest)
    cards = [
        Device(
            name=asked.gpu.name if asked.gpu else "card",
            kind="gpu",
            count=ranks,
            total_bytes=resolved.gpu_memory_bytes,
            components=staged.budgets[index].inside + staged.budgets[index].outside,
            cache_bytes=max(0, staged.available["best"][index]),
            claimed_bytes=staged.budgets[index].requested_bytes,
            free_bytes=free_bytes[index],
        )
        for index in order
    ]
    if host_bytes:
        cards.append(
            Device(name="host", kind="host", total_bytes=host_bytes, components=(), cache_bytes=0, free_bytes=0)
        )
    return tuple(cards)


def fixed_bytes(resolved: Resolved, pool: Pool) -> int | None:
    """Bytes of the pool where the user states them, or the number of blocks, instead of the fraction."""
    blocks = resolved.asked.num_gpu_blocks_override
    return resolved.asked.kv_cache_memory_bytes if blocks is None else blocks * pool.bytes_per_block


def _available(resolved: Resolved, stage: StageBudget, pool: Pool, side: Side) -> int:
    fixed = fixed_bytes(resolved, pool)
    return stage.available(side) if fixed is None else fixed
