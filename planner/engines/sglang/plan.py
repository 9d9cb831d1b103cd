"""SGLang's plan: from a model and a deployment to the pools, what lives beside them, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.contract.assumed import labelled
from planner.contract.component import SIDES, Component, Side, total
from planner.contract.plan import Cache, Device, Load, ServingPlan, StartupError, Verdict, WorkloadPoint
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.sglang import startup
from planner.engines.sglang.budget.drafts import separate_draft
from planner.engines.sglang.budget.outside import outside_of
from planner.engines.sglang.budget.stages import Stage, stages_of
from planner.engines.sglang.budget.weights import scheme_of, weights_of
from planner.engines.sglang.deployment import Deployment
from planner.engines.sglang.fraction import Fractions, working_fractions
from planner.engines.sglang.notes import plan_notes
from planner.engines.sglang.pool.pools import Pools, request_bytes, requests_held
from planner.engines.sglang.resolve import Resolved, resolve
from planner.engines.sglang.tables.releases import rules_at
from planner.memory.cache.kv_cache import LayerCache, layer_caches, sequence_cost
from planner.memory.parallel.sharding import stage_layer_counts, stage_slices
from planner.memory.quantisation import WeightScheme
from planner.memory.work import StageWork, Work
from planner.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A stage with what its card becomes; `pools` and `left` (bytes that stay free) at each side of the bands."""

    stage: Stage
    pools: Mapping[Side, Pools]
    outside: tuple[Component, ...]
    left: Mapping[Side, int]


@dataclass(frozen=True, kw_only=True, repr=False)
class SglangPlan(ServingPlan):
    """A plan with what only SGLang has.

    Args:
        resolved: the inputs with every default.
        scheme: how the weights are stored.
        budgets: of every pipeline stage; fullest: index of the one that decides.
    """

    resolved: Resolved
    scheme: WeightScheme
    budgets: tuple[Budget, ...]
    fullest: int

    @property
    def budget(self) -> Budget:
        """The fullest stage's."""
        return self.budgets[self.fullest]

    @property
    def pools(self) -> Pools:
        """The pools at best estimates."""
        return self.budget.pools["best"]

    @property
    def work(self) -> Work:
        """What a step reads and multiplies."""
        resolved, spec = self.resolved, self.model.spec
        runs = stage_slices(stage_layer_counts(len(spec.layers), self.deployment.pp_size))
        return Work(
            ways=self.deployment.tp_size,
            element_bytes=4 if resolved.dtype == "float32" else 2,
            scheme=self.scheme,
            graphs=not self.deployment.disable_cuda_graph,
            stages=tuple(
                StageWork(
                    layers=run,
                    weights=weights_of(
                        self.model, self.scheme, resolved.spread, layers=run, first=at == 0, last=at == len(runs) - 1
                    ).by_role,
                    caches=_caches(self.model, resolved, run),
                )
                for at, run in enumerate(runs)
            ),
        )

    def fractions(self) -> Fractions:
        """The least and the greatest --mem-fraction-static that work for the asked requests."""
        factor, last = self.resolved.given_factor, self.deployment.pp_size - 1

        def at(given: float) -> list[Budget]:
            fraction = given * factor
            return [
                _budget(
                    self.model,
                    self.resolved,
                    self.scheme,
                    replace(entry.stage, fraction=fraction),
                    last=entry.stage.index == last,
                )
                for entry in self.budgets
            ]

        length, wanted = asked_length(self.workload, self.resolved), self.workload.concurrency

        def holds(given: float) -> bool:
            return all(_held(entry, "best", self.resolved, length) >= wanted for entry in at(given))

        return working_fractions(
            holds,
            lambda given: all(entry.left["best"] >= 0 for entry in at(given)),
            lambda given: all(entry.pools["best"].tokens > 0 for entry in at(given)),
        )


def plan_serving(
    model: Model, asked: Deployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> SglangPlan:
    """Plan one deployment; `notes` are what the caller wants said with the plan.

    Raises:
        UsageError: options out of range, contradictory, or refused by the engine; names the option.
        UnsupportedQuantization: a storage format that is not understood.
    """
    resolved = resolve(model, asked)
    scheme = scheme_of(model, resolved)
    last = asked.pp_size - 1
    budgets = tuple(
        _budget(model, resolved, scheme, stage, last=stage.index == last)
        for stage in stages_of(model, resolved, scheme)
    )
    fullest = min(range(len(budgets)), key=lambda at: (budgets[at].pools["best"].tokens, budgets[at].left["best"]))
    budget = budgets[fullest]
    pools, inputs = budget.pools["best"], budget.stage.pool_inputs
    length = asked_length(workload, resolved)
    unknown = _unknown(model, resolved)
    error = _startup_error(model, resolved, budgets)
    verdict = _verdict(workload, resolved, error, budgets, unknown)
    one = sequence_cost(_caches(model, resolved), resolved.context_length)
    return SglangPlan(
        model=model,
        deployment=asked,
        workload=workload,
        engine="sglang",
        engine_version=asked.engine_version,
        resolved=resolved,
        scheme=scheme,
        budgets=budgets,
        fullest=fullest,
        devices=_devices(resolved, budgets, fullest),
        cache=Cache(
            bytes_per_token=one.bytes_per_token,
            bytes_per_sequence=one.total_bytes,
            window_bytes_per_sequence=one.window_bytes,
            state_bytes_per_sequence=one.state_bytes,
            reserved_bytes=pools.total_bytes,
            tokens=pools.tokens,
            max_concurrency=pools.tokens / resolved.context_length,
            request_bytes=request_bytes(inputs, length),
            longest=_longest(model, resolved, budgets, workload.concurrency),
        ),
        max_model_len=resolved.context_length,
        positions=model.longest_request,
        points=_points(workload, resolved, budgets),
        load=Load(gpu_peak_bytes=budget.stage.static[0].best, host_bytes=asked.cpu_offload_bytes),
        verdict=verdict,
        shortfall_bytes=_shortfall(verdict, budgets, length, workload.concurrency, resolved),
        startup_error=error,
        unknown=unknown if verdict == "unknown" else (),
        notes=plan_notes(model, resolved, scheme, budget.stage, pools, workload, said=notes),
    )


def asked_length(workload: Workload, resolved: Resolved) -> int:
    """Tokens of the requests that admission is planned at."""
    admission = workload.admission
    return min(admission[1], resolved.context_length) if admission else resolved.context_length


def _budget(model: Model, resolved: Resolved, scheme: WeightScheme, stage: Stage, *, last: bool) -> Budget:
    pools = {side: stage.pools(side) for side in SIDES}
    outside = labelled(outside_of(model, resolved, scheme, stage, pools["best"], last=last), model.spec.assumed)
    left = {side: stage.free_after(side) - pools[side].total_bytes - total(outside, side) for side in SIDES}
    return Budget(stage=stage, pools=pools, outside=outside, left=left)


def _ranks(resolved: Resolved) -> int:
    """Data-parallel ranks that share the requests of one server."""
    return resolved.spread.attention_ranks if resolved.asked.enable_dp_attention else resolved.asked.dp_size


def _held(entry: Budget, side: Side, resolved: Resolved, length: int) -> int:
    return requests_held(entry.pools[side], entry.stage.pool_inputs, length) * _ranks(resolved)


def _verdict(
    workload: Workload,
    resolved: Resolved,
    error: StartupError | None,
    budgets: tuple[Budget, ...],
    unknown: tuple[str, ...],
) -> Verdict:
    if error is not None and error.refused:
        return "refused"
    length, wanted = asked_length(workload, resolved), workload.concurrency
    admission = workload.admission
    serves = admission is None or admission[1] <= resolved.context_length
    fits = {
        side: all(entry.left[side] >= 0 and _held(entry, side, resolved, length) >= wanted for entry in budgets)
        for side in SIDES
    }
    if unknown:
        return "unknown"
    if error is not None or not serves or not fits["best"]:
        return "does_not_fit"
    return "fits" if fits["high"] else "tight"


def _unknown(model: Model, resolved: Resolved) -> tuple[str, ...]:
    rules = rules_at(resolved.release)
    found = []
    if model.spec.model_type.startswith("deepseek_v4") and rules["compressed"] != "ratio":
        found.append(
            f"the pools of DeepSeek-V4 in SGLang {resolved.asked.engine_version}: only 0.5.12 is described; the figures"
            " are its"
        )
    draft = separate_draft(model, resolved)
    if draft is not None and draft.model is None:
        found.append(draft.note)
    return tuple(found)


def _startup_error(model: Model, resolved: Resolved, budgets: tuple[Budget, ...]) -> StartupError | None:
    if resolved.context_length > model.longest_request and not resolved.asked.allow_longer_context:
        return startup.beyond_positions(resolved.context_length, model.longest_request)
    for entry in budgets:
        stage, pools = entry.stage, entry.pools["best"]
        if stage.free_after() < 0:
            needed = stage.free_before() - stage.free_after()
            return startup.weights_too_large(needed_bytes=needed, free_bytes=stage.free_before())
        if pools.states is not None and pools.states.slots < 1:
            return startup.no_states(
                resolved.release, rest_bytes=max(0, stage.rest()), slot_bytes=stage.pool_inputs.slot_bytes
            )
        if pools.tokens < 1:
            return startup.no_cache(resolved.release, resolved.mem_fraction_static)
        if entry.left["best"] < 0:
            return startup.outside_budget(short_bytes=-entry.left["best"])
    return None


def _shortfall(verdict: Verdict, budgets: tuple[Budget, ...], length: int, concurrency: int, resolved: Resolved) -> int:
    if verdict != "does_not_fit":
        return 0
    each = -(-concurrency // _ranks(resolved))
    short = 0
    for entry in budgets:
        wanted = request_bytes(entry.stage.pool_inputs, length) * each
        beside = sum(part.best for part in entry.outside)
        short = max(short, wanted + beside - entry.stage.free_after(), wanted - entry.stage.rest())
    return max(0, short)


def _caches(model: Model, resolved: Resolved, run: slice = slice(None)) -> tuple[LayerCache, ...]:
    """What layers keep of a sequence, on one card."""
    parallel, dtype = resolved.spread.attention_parallel_size, resolved.asked.mamba_ssm_dtype
    key = ("sglang caches", resolved.cache_format.name, parallel, dtype, run.start, run.stop)
    found = model.memo.get(key)
    if found is None:
        found = model.memo[key] = layer_caches(
            model.spec.layers[run],
            resolved.cache_format,
            tensor_parallel_size=parallel,
            recurrent_dtype=dtype or "float32",
        )
    return found  # type: ignore[return-value]


def _longest(model: Model, resolved: Resolved, budgets: tuple[Budget, ...], concurrency: int) -> int:
    """The longest request of which so many fit, never beyond the model's positions."""
    if any(_held(entry, "best", resolved, 1) < concurrency for entry in budgets):
        return 0
    each = -(-concurrency // _ranks(resolved))
    most = min((entry.pools["best"].tokens for entry in budgets), default=0)
    page = resolved.page_size
    return min(model.longest_request, most // each // page * page)


def _devices(resolved: Resolved, budgets: tuple[Budget, ...], fullest: int) -> tuple[Device, ...]:
    asked = resolved.asked
    replicas = 1 if asked.enable_dp_attention else asked.dp_size
    order = sorted(range(len(budgets)), key=lambda at: at != fullest)
    found = []
    for at in order:
        entry = budgets[at]
        name = resolved.gpu.name + (f", stage {at + 1} of {len(budgets)}" if len(budgets) > 1 else "")
        pools = entry.pools["best"].total_bytes
        found.append(
            Device(
                name=name,
                kind="gpu",
                count=asked.tp_size * replicas,
                total_bytes=entry.stage.total_bytes,
                components=(*entry.stage.before, *entry.stage.static, *entry.outside),
                cache_bytes=pools,
                claimed_bytes=entry.stage.free_before() - entry.stage.free_after() + pools,
                free_bytes=entry.left["best"],
            )
        )
    host = _host(resolved, budgets[fullest])
    return (*found, host) if host is not None else tuple(found)


def _host(resolved: Resolved, entry: Budget) -> Device | None:
    """The host's share, where the command puts something there."""
    asked = resolved.asked
    parts: list[tuple[str, int, str]] = []
    if asked.cpu_offload_bytes:
        parts.append(("offloaded_weights", asked.cpu_offload_bytes * asked.cards, "--cpu-offload-gb on every card"))
    if asked.enable_hierarchical_cache:
        pool = entry.pools["best"].allocated_bytes
        size = asked.hicache_size_bytes or round(pool * asked.hicache_ratio)
        how = "--hicache-size" if asked.hicache_size_bytes else f"{asked.hicache_ratio:g} x the pool of a card"
        parts.append(("host_cache", size * asked.cards, f"{how}, {asked.cards} ranks"))
    if not parts:
        return None
    components = tuple(
        Component(
            name=name,
            low=size,
            best=size,
            high=size,
            evidence="derived",
            formula=formula,
            source="SGLang 0.5.9 mem_cache/memory_pool_host.py",
        )
        for name, size, formula in parts
    )
    size = sum(part.best for part in components)
    return Device(name="host", kind="host", total_bytes=size, components=components, cache_bytes=0, free_bytes=0)


def _points(workload: Workload, resolved: Resolved, budgets: tuple[Budget, ...]) -> tuple[WorkloadPoint, ...]:
    longest = resolved.context_length
    return tuple(
        WorkloadPoint(
            at=name,
            tokens_per_request=length,
            concurrency=min(_held(entry, "best", resolved, length) for entry in budgets) if length <= longest else 0,
        )
        for name, length in [("max_model_len", longest), *workload.points]
    )
