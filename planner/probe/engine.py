"""A running vLLM's cache beside the plan of the same start."""

from __future__ import annotations

from dataclasses import replace

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import plan_serving
from planner.engines.vllm.plan import VllmPlan
from planner.model.model import Model
from planner.probe.metrics import CacheInfo


def deployment_of(asked: Deployment, info: CacheInfo) -> Deployment:
    """The deployment as asked for, with what the server says of its cache put in."""
    changes: dict[str, object] = {}
    if info.block_size is not None:
        changes["block_size"] = info.block_size
    if info.cache_dtype is not None:
        changes["kv_cache_dtype"] = info.cache_dtype
    if info.gpu_memory_utilization is not None:
        changes["gpu_memory_utilization"] = info.gpu_memory_utilization
    if info.enable_prefix_caching is not None:
        changes["enable_prefix_caching"] = info.enable_prefix_caching
    if info.num_gpu_blocks_override is not None:
        changes["num_gpu_blocks_override"] = info.num_gpu_blocks_override
    return replace(asked, **changes)  # type: ignore[arg-type]


def compare_cache(model: Model, asked: Deployment, info: CacheInfo) -> tuple[VllmPlan, list[dict[str, object]]]:
    """The plan, and a row for each figure that the server states: planned, measured, the plan's relative error.

    Raises:
        PlannerError: the planner refuses this start.
    """
    plan = plan_serving(model, deployment_of(asked, info))
    pairs = (
        ("blocks", plan.num_blocks, info.num_gpu_blocks),
        ("tokens", plan.num_blocks * plan.pool.block_size, info.tokens),
    )
    rows: list[dict[str, object]] = [
        {"figure": name, "planned": planned, "measured": measured, "error": planned / measured - 1}
        for name, planned, measured in pairs
        if measured
    ]
    return plan, rows
