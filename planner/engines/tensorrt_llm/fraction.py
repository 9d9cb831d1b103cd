"""The least and the greatest fraction of what is left with which a plan works."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan, asked_length, held_requests, plan_serving

_STEPS = 100


def fraction_bounds(plan: TensorrtLlmPlan) -> tuple[float | None, float | None]:
    """(least, greatest) in hundredths: the pool holds the asked requests, and what comes after it fits."""
    workload, length = plan.workload, asked_length(plan.workload, plan.resolved)

    def at(step: int) -> TensorrtLlmPlan:
        return plan_serving(plan.model, with_fraction(plan.deployment, step / _STEPS), workload)

    def holds(step: int) -> bool:
        stages = at(step).stages
        return all(held_requests(stage, "best", plan.resolved, length) >= workload.concurrency for stage in stages)

    def leaves(step: int) -> bool:
        return all(stage.free["best"] >= 0 for stage in at(step).stages)

    least = _turn(holds)
    past = _turn(lambda step: not leaves(step))
    greatest = _STEPS - 1 if past is None else past - 1
    return (least / _STEPS if least else None, greatest / _STEPS if greatest else None)


def _turn(true_from: Callable[[int], bool]) -> int | None:
    """The first step from which it holds; None if it does not at the last."""
    low, high = 0, _STEPS - 1
    if not true_from(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if true_from(middle):
            high = middle
        else:
            low = middle
    return high


def with_fraction(asked: Deployment, fraction: float) -> Deployment:
    """The deployment with another fraction, in the YAML's place where that says one."""
    if asked.cache_setting("free_gpu_memory_fraction") is None:
        return replace(asked, kv_cache_free_gpu_memory_fraction=fraction)
    values = json.loads(asked.kv_cache_config or "{}") | {"free_gpu_memory_fraction": fraction}
    return replace(asked, kv_cache_config=json.dumps(values, sort_keys=True))
