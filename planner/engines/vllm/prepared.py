"""A deployment at many lengths: what the length does not change is computed once.

The budget changes only with the batch, MLA's prefill workspace and the images of a prompt; the pool's layout with the
batch, and with the length where layers are recurrent. What is left is a handful of integer operations a length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.contract.component import SIDES
from planner.contract.engine import AtLength
from planner.contract.workload import Workload
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import plan_serving
from planner.engines.vllm.model.storage import scheme_for
from planner.engines.vllm.outcome.verdict import decide, free_at_start, loading_bytes, refusal, shortage
from planner.engines.vllm.pool.layout import Pool
from planner.engines.vllm.pool.pool import NO_END
from planner.engines.vllm.resolve import Resolved, batch_defaults, resolve
from planner.engines.vllm.stages import form_of, outside_of, parallelism_of, pool_of, stages_of
from planner.memory.cache.kv_cache import LayerCache, sequence_cost
from planner.model.caches import CompressedCache, KeyValueCache
from planner.model.model import Model


@dataclass(frozen=True, slots=True)
class _Budget:
    """What the length leaves alone; pairs of bytes are (best, high)."""

    resolved: Resolved
    weights_as: str
    weights: int
    loading: int
    free: int
    requested: int
    available: tuple[int, int]
    outside: tuple[int, int]


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


class PreparedVllm:
    """A deployment of one pipeline stage and one instance; others are planned at each length."""

    def __init__(self, model: Model, deployment: Deployment, workload: Workload) -> None:
        self._model, self._deployment, self._workload = model, deployment, workload
        self._first = resolve(model, replace(deployment, max_model_len=1))
        self._budgets = _budgets_of(model, deployment)
        self._layouts: dict[tuple[int, int], _Layout] = {}
        self._alone = deployment.pipeline_parallel_size == 1 and deployment.instances == 1
        self._stated = deployment.kv_cache_memory_bytes is not None or deployment.num_gpu_blocks_override is not None

    def at(self, max_model_len: int) -> AtLength:
        """The figures at this length, as `plan_serving` has them.

        Raises:
            PlannerError: as `plan_serving`.
        """
        if not self._alone or self._stated or self._workload.points:
            return self._planned(max_model_len)
        budget = self._budget(max_model_len)
        layout = self._layout(budget.resolved, max_model_len)
        resolved, pool = budget.resolved, layout.pool
        best, high = budget.available
        blocks, careful = pool.num_blocks(best), pool.num_blocks(high)
        each = pool.blocks_for(max_model_len)
        held, surely = (blocks // each, careful // each) if each else (NO_END, NO_END)
        kind = shortage(
            checks_free_memory=resolved.profile.checks_free_memory,
            free=budget.free,
            requested=budget.requested,
            loading=budget.loading,
            pool=pool,
            available=best,
            blocks=blocks,
            needed=pool.needed_bytes(max_model_len),
            outside_free=budget.outside[0],
        )
        refused = None
        if max_model_len > resolved.positions or resolved.asked.gpu is None or resolved.asked.gpu.vendor == "Apple":
            refused = refusal(self._model, replace(resolved, max_model_len=max_model_len))
        verdict = decide(
            refused=refused is not None,
            starts=not kind,
            held=(held, surely),
            wanted=self._workload.concurrency,
            outside_free=budget.outside,
            left_high=high,
            unknown=bool(resolved.unknown),
        )
        by_concurrency = pool.tokens_line == "concurrency" and pool.groups and each
        tokens = int(blocks / each * max_model_len) if by_concurrency else pool.tokens(blocks)
        return AtLength(
            max_model_len,
            budget.weights_as,
            budget.weights,
            layout.growth(max_model_len),
            max(0, best),
            tokens,
            held,
            verdict,
            refused.message if refused else "",
        )

    def _planned(self, length: int) -> AtLength:
        plan = plan_serving(self._model, replace(self._deployment, max_model_len=length), self._workload)
        weights = plan.budget.component("weights")
        error = plan.startup_error
        return AtLength(
            length,
            plan.scheme.label,
            weights.best if weights else 0,
            plan.sequence.bytes_per_token,
            plan.kv_cache_bytes,
            plan.kv_tokens,
            int(plan.max_concurrency),
            plan.verdict,
            error.message if error is not None and error.refused else "",
        )

    def _budget(self, length: int) -> _Budget:
        model, first = self._model, self._first
        batch = batch_defaults(model, self._deployment, first.profile, first.gpu_memory_bytes, length)
        key = (*batch, length if model.has_latent_cache else _most_items(model, batch[0], length))
        found = self._budgets.get(key)
        if found is None:
            found = self._budgets[key] = self._computed(resolve(model, replace(self._deployment, max_model_len=length)))
        return found

    def _computed(self, resolved: Resolved) -> _Budget:
        model, scheme = self._model, scheme_for(self._model, resolved)
        parallelism = parallelism_of(model, resolved.asked)
        stage = stages_of(model, resolved, scheme, parallelism)[0]
        weights = stage.component("weights")
        assert weights is not None
        outside, left = outside_of(resolved, stage)
        _, best, high = (stage.available(side) for side in SIDES)
        return _Budget(
            resolved=resolved,
            weights_as=scheme.label,
            weights=weights.best,
            loading=loading_bytes(model, resolved, parallelism, stage, stages=1),
            free=free_at_start(stage, resolved.gpu_memory_bytes, outside),
            requested=stage.requested_bytes,
            available=(best, high),
            outside=(left["best"], left["high"]),
        )

    def _layout(self, resolved: Resolved, length: int) -> _Layout:
        # recurrent layers take a block as long as the longest request in some versions
        key = (resolved.max_num_batched_tokens, length if self._model.is_recurrent else 0)
        found = self._layouts.get(key)
        if found is None:
            # the budget is shared between cache types, the layout is this one's
            asked = replace(resolved.asked, kv_cache_dtype=self._deployment.kv_cache_dtype)
            exact = replace(resolved, asked=asked)
            if self._model.is_recurrent:
                exact = replace(exact, max_model_len=length)
            found = self._layouts[key] = _layout(self._model, exact)
        return found


def _budgets_of(model: Model, deployment: Deployment) -> dict[tuple[int, int, int], _Budget]:
    """What is computed so far for this deployment; the cache's type bears on it with sparse attention alone."""
    if model.has_sparse_latent_cache:
        return {}
    key = ("budgets", replace(deployment, kv_cache_dtype="auto"))
    found = model.memo.setdefault(key, {})
    assert isinstance(found, dict)
    return found


def _most_items(model: Model, batched_tokens: int, length: int) -> int:
    """Items of a prompt of this length, as far as the profile run's batch can take more of them."""
    tokens = max((stack.tokens_per_item or 0 for stack in model.spec.stacks), default=0)
    return min(length // tokens, max(batched_tokens, tokens) // tokens) if tokens else 0


def _layout(model: Model, resolved: Resolved) -> _Layout:
    form = form_of(model, resolved)
    pool, caches = pool_of(model, resolved, form, slice(0, len(model.spec.layers)))
    windows = [
        cache.sliding_window or (cache.attention_chunk_size if isinstance(cache, KeyValueCache) else 0) or 0
        for cache in (entry.cache for entry in caches)
        if isinstance(cache, KeyValueCache | CompressedCache)
    ]
    settled = max(windows, default=0)
    return _Layout(pool, caches, settled, sequence_cost(caches, settled + 1).bytes_per_token)
