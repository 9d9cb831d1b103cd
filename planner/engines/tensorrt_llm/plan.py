"""TensorRT-LLM's plan: what is there before the cache, the cache as a fraction of what is left, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from planner.contract.component import SIDES, Component, Side, exact, total
from planner.contract.plan import Cache, Device, Load, ServingPlan, StartupError, Verdict, WorkloadPoint
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.tensorrt_llm.before import before_cache, graphs_of, scheme_of, spread_of, weights_of
from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.notes import plan_notes
from planner.engines.tensorrt_llm.pool import BlockPool, block_pool
from planner.engines.tensorrt_llm.resolve import Resolved, resolve
from planner.memory.cache.kv_cache import LayerCache, layer_caches, sequence_cost
from planner.memory.parallel.sharding import stage_layer_counts, stage_slices
from planner.memory.quantisation import WeightScheme
from planner.memory.work import StageWork, Work
from planner.model.caches import StateCache
from planner.model.model import Model
from planner.units import gib


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One distinct card: what it holds before the cache, the cache at each side, and what stays free."""

    before: tuple[Component, ...]
    outside: tuple[Component, ...]
    bytes_per_token: int
    left: dict[Side, int]
    pools: dict[Side, BlockPool]
    free: dict[Side, int]


@dataclass(frozen=True, kw_only=True, repr=False)
class TensorrtLlmPlan(ServingPlan):
    """A plan with what only TensorRT-LLM has; `fullest` is the index of the stage that decides."""

    resolved: Resolved
    scheme: WeightScheme
    stages: tuple[Stage, ...]
    fullest: int

    @property
    def work(self) -> Work:
        """What a step reads and multiplies."""
        asked, spec = self.deployment, self.model.spec
        runs = stage_slices(stage_layer_counts(len(spec.layers), asked.pp_size))
        return Work(
            ways=asked.tp_size,
            element_bytes=4 if self.resolved.dtype == "float32" else 2,
            scheme=self.scheme,
            stages=tuple(
                StageWork(
                    layers=run,
                    weights=weights_of(
                        self.model,
                        self.scheme,
                        spread_of(asked.tp_size, asked.ep_size or 1, attention_data_parallel=asked.enable_attention_dp),
                        run,
                        first=at == 0,
                        last=at == len(runs) - 1,
                    ).by_role,
                    caches=_caches(self.model, self.resolved, run),
                )
                for at, run in enumerate(runs)
            ),
        )

    @property
    def pool(self) -> BlockPool:
        """The pool of the fullest card, at best estimates."""
        return self.stages[self.fullest].pools["best"]


def plan_serving(
    model: Model, asked: Deployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> TensorrtLlmPlan:
    """Plan one deployment; `notes` are what the caller wants said with the plan.

    Raises:
        UsageError: options out of range, contradictory, or refused by the engine; names the option.
        UnsupportedQuantization: a storage format that is not understood.
    """
    resolved = resolve(model, asked)
    scheme = scheme_of(
        model,
        resolved.dtype,
        asked.quantization,
        group_size=asked.group_size,
        quantize_lm_head=asked.quantize_lm_head,
    )
    runs = stage_slices(stage_layer_counts(len(model.spec.layers), asked.pp_size))
    stages = tuple(
        _stage(model, resolved, scheme, run, first=at == 0, last=at == len(runs) - 1) for at, run in enumerate(runs)
    )
    fullest = min(range(len(stages)), key=lambda at: (stages[at].pools["best"].tokens, stages[at].left["best"]))
    stage = stages[fullest]
    pool = stage.pools["best"]
    length = asked_length(workload, resolved)
    unknown = _unknown(model, resolved)
    error = _startup_error(model, resolved, stages)
    verdict = _verdict(workload, resolved, error, stages, unknown)
    one = sequence_cost(_caches(model, resolved, slice(None)), resolved.max_seq_len)
    return TensorrtLlmPlan(
        model=model,
        deployment=asked,
        workload=workload,
        engine="tensorrt-llm",
        engine_version=asked.engine_version,
        resolved=resolved,
        scheme=scheme,
        stages=stages,
        fullest=fullest,
        devices=_devices(resolved, stages, fullest),
        cache=Cache(
            bytes_per_token=one.bytes_per_token,
            bytes_per_sequence=one.total_bytes,
            window_bytes_per_sequence=one.window_bytes,
            state_bytes_per_sequence=one.state_bytes,
            reserved_bytes=pool.bytes,
            tokens=pool.tokens,
            max_concurrency=pool.tokens / resolved.max_seq_len,
            request_bytes=_blocks(resolved, length) * resolved.tokens_per_block * stage.bytes_per_token,
            longest=_longest(model, resolved, stages, workload.concurrency),
        ),
        max_model_len=resolved.max_seq_len,
        positions=model.longest_request,
        points=_points(workload, resolved, stages),
        load=Load(gpu_peak_bytes=next(part.best for part in stage.before if part.name == "weights"), host_bytes=0),
        verdict=verdict,
        shortfall_bytes=_shortfall(verdict, resolved, stages, length, workload.concurrency),
        startup_error=error,
        unknown=unknown if verdict == "unknown" else (),
        notes=plan_notes(model, resolved, scheme, pool.tokens, workload, notes),
    )


def _caches(model: Model, resolved: Resolved, run: slice) -> tuple[LayerCache, ...]:
    key = ("tensorrt-llm caches", resolved.cache_format.name, resolved.attention_parallel_size, run.start, run.stop)
    found = model.memo.get(key)
    if found is None:
        found = model.memo[key] = layer_caches(
            model.spec.layers[run], resolved.cache_format, tensor_parallel_size=resolved.attention_parallel_size
        )
    return found  # type: ignore[return-value]


def bytes_per_token(model: Model, resolved: Resolved, run: slice = slice(None)) -> int:
    """Bytes of a token in every layer of a stage, windows at full length."""
    return sum(entry.count * entry.slot_bytes for entry in _caches(model, resolved, run))


def _stage(model: Model, resolved: Resolved, scheme: WeightScheme, run: slice, *, first: bool, last: bool) -> Stage:
    asked = resolved.asked
    before = before_cache(
        model,
        resolved.gpu,
        scheme,
        run,
        first=first,
        last=last,
        tensor_parallel_size=asked.tp_size,
        pipeline_parallel_size=asked.pp_size,
        expert_parallel_size=asked.ep_size or 1,
        attention_data_parallel=asked.enable_attention_dp,
        max_num_tokens=resolved.max_num_tokens,
        max_batch_size=resolved.max_batch_size,
        max_beam_width=asked.max_beam_width,
        backend=resolved.backend,
        already_used_bytes=asked.already_used_bytes,
    )
    outside = graphs_of(resolved.backend)
    cell = bytes_per_token(model, resolved, run)
    left = {side: asked.total_bytes - total(before, side) for side in SIDES}
    pools = {side: _pool(resolved, left[side], cell) for side in SIDES}
    free = {side: left[side] - pools[side].bytes - total(outside, side) for side in SIDES}
    return Stage(before=before, outside=outside, bytes_per_token=cell, left=left, pools=pools, free=free)


def _pool(resolved: Resolved, left: int, cell: int) -> BlockPool:
    asked = resolved.asked
    return block_pool(
        left - asked.safety_margin_bytes,
        fraction=asked.fraction,
        bytes_per_token=cell,
        tokens_per_block=resolved.tokens_per_block,
        release=resolved.release,
        max_tokens=asked.cache_setting("max_tokens"),
        max_gpu_total_bytes=asked.cache_setting("max_gpu_total_bytes"),
    )


def _blocks(resolved: Resolved, length: int) -> int:
    return -(-length // resolved.tokens_per_block) * resolved.asked.max_beam_width


def asked_length(workload: Workload, resolved: Resolved) -> int:
    """Tokens of the requests that admission is planned at."""
    admission = workload.admission
    return min(admission[1], resolved.max_seq_len) if admission else resolved.max_seq_len


def held_requests(stage: Stage, side: Side, resolved: Resolved, length: int) -> int:
    """Requests of this length that run at once."""
    ranks = resolved.asked.tp_size if resolved.asked.enable_attention_dp else 1
    held = stage.pools[side].blocks // _blocks(resolved, length) if stage.bytes_per_token else resolved.max_batch_size
    return min(held, resolved.max_batch_size) * ranks


def _verdict(
    workload: Workload,
    resolved: Resolved,
    error: StartupError | None,
    stages: tuple[Stage, ...],
    unknown: tuple[str, ...],
) -> Verdict:
    if error is not None and error.refused:
        return "refused"
    if unknown:
        return "unknown"
    length, wanted, admission = asked_length(workload, resolved), workload.concurrency, workload.admission
    fits = {
        side: all(stage.free[side] >= 0 and held_requests(stage, side, resolved, length) >= wanted for stage in stages)
        for side in SIDES
    }
    serves = admission is None or admission[1] <= resolved.max_seq_len
    if error is not None or not serves or not fits["best"]:
        return "does_not_fit"
    return "fits" if fits["high"] else "tight"


def _unknown(model: Model, resolved: Resolved) -> tuple[str, ...]:
    found = []
    if any(isinstance(cache, StateCache) for cache in model.caches):
        found.append("recurrent states: how TensorRT-LLM sizes their pool is not described; the figures leave it out")
    if any(word.startswith("--speculative-config") for word in resolved.asked.passed):
        found.append("the draft of speculative_config: plan without it, and the draft on its own")
    return tuple(found)


def _startup_error(model: Model, resolved: Resolved, stages: tuple[Stage, ...]) -> StartupError | None:
    if resolved.max_seq_len > model.longest_request:
        return StartupError(
            kind="max_model_len",
            message=f"max_seq_len {resolved.max_seq_len} is more than the model's {model.longest_request} positions",
            refused=True,
        )
    for stage in stages:
        if stage.left["best"] < 0:
            return StartupError(
                kind="weights",
                message="Executor creation failed due to insufficient GPU memory:"
                f" {gib(-stage.left['best'])} GiB short before the cache",
            )
        if stage.bytes_per_token and stage.pools["best"].blocks < 1:
            return StartupError(
                kind="no_cache",
                message="no block of the KV cache fits; Executor creation failed due to insufficient GPU memory",
            )
        if stage.free["best"] < 0:
            return StartupError(
                kind="outside_budget",
                message=f"CUDA out of memory after the cache: {gib(-stage.free['best'])} GiB short;"
                " a lower kv_cache_free_gpu_memory_fraction helps",
            )
    return None


def _shortfall(verdict: Verdict, resolved: Resolved, stages: tuple[Stage, ...], length: int, concurrency: int) -> int:
    if verdict != "does_not_fit":
        return 0
    ranks = resolved.asked.tp_size if resolved.asked.enable_attention_dp else 1
    short = 0
    for stage in stages:
        wanted = (
            _blocks(resolved, length) * resolved.tokens_per_block * stage.bytes_per_token * -(-concurrency // ranks)
        )
        short = max(short, wanted - stage.pools["best"].bytes, -stage.free["best"])
    return short


def _longest(model: Model, resolved: Resolved, stages: tuple[Stage, ...], concurrency: int) -> int:
    ranks = resolved.asked.tp_size if resolved.asked.enable_attention_dp else 1
    if resolved.max_batch_size * ranks < concurrency:
        return 0
    each = -(-concurrency // ranks) * resolved.asked.max_beam_width
    blocks = min(stage.pools["best"].blocks for stage in stages)
    return min(model.longest_request, blocks // each * resolved.tokens_per_block)


def _devices(resolved: Resolved, stages: tuple[Stage, ...], fullest: int) -> tuple[Device, ...]:
    asked = resolved.asked
    found = []
    for at in sorted(range(len(stages)), key=lambda at: at != fullest):
        stage = stages[at]
        name = resolved.gpu.name + (f", stage {at + 1} of {len(stages)}" if len(stages) > 1 else "")
        pool = stage.pools["best"].bytes
        found.append(
            Device(
                name=name,
                kind="gpu",
                count=asked.tp_size,
                total_bytes=asked.total_bytes,
                components=(*stage.before, *stage.outside),
                cache_bytes=pool,
                claimed_bytes=pool,
                free_bytes=stage.free["best"],
            )
        )
    host = asked.cache_setting("host_cache_size")
    if host:
        size = int(host) * asked.cards
        part = exact("host_cache", size, f"host_cache_size on {asked.cards} ranks", "kv_cache_config")
        found.append(
            Device(name="host", kind="host", total_bytes=size, components=(part,), cache_bytes=0, free_bytes=0)
        )
    return tuple(found)


def _points(workload: Workload, resolved: Resolved, stages: tuple[Stage, ...]) -> tuple[WorkloadPoint, ...]:
    def held(length: int) -> int:
        if length > resolved.max_seq_len:
            return 0
        return min(held_requests(stage, "best", resolved, length) for stage in stages)

    return tuple(
        WorkloadPoint(at=name, tokens_per_request=length, concurrency=held(length))
        for name, length in [("max_model_len", resolved.max_seq_len), *workload.points]
    )
