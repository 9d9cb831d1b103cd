"""The deployment of a plan as JSON: every field of `Deployment`, with the engine's defaults filled in."""

from __future__ import annotations

from dataclasses import fields

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.plan import ServingPlan


def deployment_json(plan: ServingPlan) -> dict[str, object]:
    """Plain values under the fields' own names, and `weight_format`; null is the engine's own default.

    Sizes are bytes; `gpu_memory_utilization` is the fraction that realises the plan, a safety margin taken off.
    """
    resolved, asked = plan.resolved, plan.resolved.asked
    decided: dict[str, object] = {
        "engine_version": resolved.profile.version,
        "gpu": asked.gpu.name if asked.gpu else None,
        "gpu_memory_bytes": resolved.gpu_memory_bytes,
        "dtype": resolved.dtype,
        # a checkpoint that is quantised already is planned as it is
        "quantization": asked.quantization if plan.model.spec.quantization_config is None else None,
        "block_size": plan.pool.block_size,
        "max_model_len": resolved.max_model_len,
        "max_num_seqs": resolved.max_num_seqs,
        "max_num_batched_tokens": resolved.max_num_batched_tokens,
        "gpu_memory_utilization": plan.utilization,
        "enable_prefix_caching": resolved.enable_prefix_caching,
    }
    found = {field.name: _plain(getattr(asked, field.name)) for field in fields(Deployment)}
    return found | decided | {"weight_format": plan.scheme.label}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
