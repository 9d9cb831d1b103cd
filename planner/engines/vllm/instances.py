"""Several instances of one engine on one card: fractions that must add up.

Each instance takes `fraction x total` and, beside it, its context, graphs that its version captures outside the
fraction, and what it allocates after profiling. From 0.9.2 an instance refuses to start when less is free than its
fraction asks for (vLLM `v1/worker/gpu_worker.py` init_device); V1 up to 0.8 instead counts what others hold as its own,
so that a later instance must ask for a fraction that includes theirs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.plan import VllmPlan, plan_one
from planner.model.model import Model
from planner.units import format_size


def plan_serving(
    model: Model, deployment: Deployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> VllmPlan:
    """The plan of a deployment; of several equal instances on each card, that of the one that finds least.

    Raises:
        PlannerError: as `plan_one`.
    """
    alone = plan_one(model, deployment, workload, notes=notes)
    instances = deployment.instances
    if instances == 1:
        return alone
    beside, held = _beside(alone), footprint_bytes(alone)
    total, fraction = alone.resolved.gpu_memory_bytes, alone.utilization
    largest = math.floor((total / instances - beside) / total * 10_000) / 10_000
    said = [
        f"{instances} instances of {fraction:g} ask for {instances * fraction:g} of the card, and hold"
        f" {format_size(held)} each with what lies beside the fraction;"
        f" at most --gpu-memory-utilization {largest:g} each"
    ]
    if alone.resolved.profile.accounting == "device_used":
        said.append(
            f"vLLM {alone.resolved.profile.version} counts what the other instances hold as its own: the k-th must ask"
            f" for about k x {fraction:g}"
        )
    others = deployment.already_used_bytes + (instances - 1) * held
    found = plan_one(model, replace(deployment, already_used_bytes=others), workload, notes=(*notes, *said))
    # asked again, it must not count the others twice
    return replace(found, deployment=replace(found.deployment, already_used_bytes=deployment.already_used_bytes))


def footprint_bytes(plan: VllmPlan) -> int:
    """What one instance holds on its fullest card, at best estimates."""
    return plan.budget.requested_bytes + _beside(plan)


def _beside(plan: VllmPlan) -> int:
    inside = {part.name for part in plan.budget.inside}
    return sum(part.best for part in plan.budget.outside if part.name != "other_processes" and part.name not in inside)
