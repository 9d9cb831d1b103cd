"""TensorRT-LLM's account of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.contract.inputs import echo
from planner.contract.section import Section, default_section
from planner.units import format_exact, format_size, gib

if TYPE_CHECKING:
    from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan


def section(plan: TensorrtLlmPlan) -> Section:
    """What reports print of a plan beside what every plan has."""
    from planner.engines.tensorrt_llm.fraction import fraction_bounds

    resolved, pool, stage = plan.resolved, plan.pool, plan.stages[plan.fullest]
    least, greatest = fraction_bounds(plan)
    works = f"from {least:g} to {greatest:g}" if least and greatest and least <= greatest else "at no value"
    return default_section(
        plan,
        headline=_headline(plan),
        lines=(
            f"{plan.deployment.fraction:g} x {gib(stage.left['best'])} GiB left = {gib(pool.budget_bytes)} GiB:"
            f" {pool.blocks:,} blocks of {resolved.tokens_per_block} tokens"
            + (f", capped by {pool.capped_by}" if pool.capped_by else ""),
            f"a token: {format_exact(stage.bytes_per_token)} ({resolved.cache_format.name} cache)",
            f"longest context at {plan.workload.concurrency} request{'s' if plan.workload.concurrency != 1 else ''}:"
            f" {plan.cache.longest:,} tokens",
            f"kv_cache_free_gpu_memory_fraction works {works}",
        ),
        inputs=echo(plan.deployment)
        | {
            "backend": resolved.backend,
            "dtype": resolved.dtype,
            "kv_cache_dtype": resolved.cache_format.name,
            "tokens_per_block": resolved.tokens_per_block,
            "max_batch_size": resolved.max_batch_size,
            "max_num_tokens": resolved.max_num_tokens,
            "max_seq_len": resolved.max_seq_len,
        },
        extra={
            "pool": {
                "left_bytes": stage.left["best"],
                "budget_bytes": pool.budget_bytes,
                "blocks": pool.blocks,
                "tokens": pool.tokens,
                "bytes_per_token": stage.bytes_per_token,
            },
            "fraction": {"used": plan.deployment.fraction, "least": least, "greatest": greatest},
        },
    )


def _headline(plan: TensorrtLlmPlan) -> str:
    error, pool = plan.startup_error, plan.pool
    if error is not None:
        return error.message if error.refused else f"short by {format_size(plan.shortfall_bytes)} per GPU"
    line = (
        f"{gib(pool.bytes)} GiB for KV cache = {pool.tokens:,} tokens ="
        f" {plan.cache.max_concurrency:.2f} requests of {plan.max_model_len:,} tokens"
    )
    if plan.verdict == "does_not_fit":
        line += f", {plan.workload.concurrency:,} wanted: short by {format_size(plan.shortfall_bytes)} per GPU"
    return line
