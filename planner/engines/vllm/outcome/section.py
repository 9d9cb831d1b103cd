"""vLLM's account of its plan: the fraction and what is taken off it, the pool of blocks, the printed figures."""

from __future__ import annotations

from collections.abc import Iterator

from planner.contract.inputs import echo
from planner.contract.section import Breakdown, Row, Section, component_json, component_row, on_paper
from planner.engines.vllm.budget.budget import StageBudget
from planner.engines.vllm.plan import VllmPlan
from planner.engines.vllm.tables.version_band import coverage
from planner.units import format_exact, format_size, gib


def section(plan: VllmPlan) -> Section:
    """What reports print of a vLLM plan beside what every plan has."""
    return Section(
        headline=_headline(plan),
        breakdowns=tuple(_breakdown(plan, stage) for stage in plan.stages),
        lines=tuple(_cache_lines(plan)),
        arithmetic=tuple(_arithmetic(plan)),
        inputs=_inputs(plan),
        extra=_extra(plan),
    )


def _headline(plan: VllmPlan) -> str:
    resolved, error = plan.resolved, plan.startup_error
    if error is not None and error.kind == "max_model_len":
        return f"{resolved.max_model_len:,} tokens are more than the model's {resolved.positions:,}"
    if error is not None and error.refused:
        return error.message
    few = coverage(resolved.profile)
    said = f" ({few})" if few else ""
    if error is not None:
        return f"short by {format_size(plan.shortfall_bytes)} per GPU{said}"
    if not plan.pool.groups:
        return f"this model keeps no cache; {gib(plan.kv_cache_bytes)} GiB of the fraction stays unused"
    line = (
        f"{gib(plan.kv_cache_bytes)} GiB for KV cache = {plan.kv_tokens:,} tokens ="
        f" {plan.max_concurrency:.2f} requests of {resolved.max_model_len:,} tokens"
    )
    refused = [point for point in plan.points if point.tokens_per_request > resolved.max_model_len]
    if refused and not plan.shortfall_bytes:
        line += f"; requests of {refused[-1].tokens_per_request:,} tokens are refused"
    elif plan.verdict == "does_not_fit":
        line += f", {plan.workload.concurrency:,} wanted: short by {format_size(plan.shortfall_bytes)} per GPU"
    return line + said


def _breakdown(plan: VllmPlan, stage: StageBudget) -> Breakdown:
    total = plan.resolved.gpu_memory_bytes
    title = ""
    if len(plan.stages) > 1:
        fullest = ", the fullest" if stage.stage == plan.fullest else ""
        title = f"pipeline stage {stage.stage} ({len(range(*stage.layers.indices(1 << 20)))} layers{fullest})"
    low, best, high = (stage.available(side) for side in ("high", "best", "low"))
    if plan.resolved.asked.kv_cache_memory_bytes is not None:
        low = best = high = plan.resolved.asked.kv_cache_memory_bytes
    rows = (
        Row(label=f"requested: {gib(total)} x {plan.utilization}", best=stage.requested_bytes),
        *(component_row(part) for part in stage.inside),
        Row(label="KV cache", sign="=", low=low, best=best, high=high),
        Row(label="outside the fraction", best=total - stage.requested_bytes),
        *(component_row(part) for part in stage.outside),
        Row(label="left on the card", sign="=", best=plan.free_bytes(stage.stage)),
    )
    return Breakdown(title=title, rows=rows)


def _cache_lines(plan: VllmPlan) -> Iterator[str]:
    cost, pool = plan.sequence, plan.pool
    if not pool.groups:
        yield "no KV cache: how many requests run at once is max_num_seqs"
        return
    yield (
        f"a sequence: {format_exact(cost.bytes_per_token)} per token, {format_exact(cost.total_bytes)} at"
        f" {plan.resolved.max_model_len:,} tokens on each GPU ({plan.cache_format.name} cache)"
    )
    if cost.window_bytes or cost.state_bytes:
        yield f"  of which windows {format_exact(cost.window_bytes)}, recurrent states {format_exact(cost.state_bytes)}"
    padding = f", {pool.padding_layers} padding layers" if pool.padding_layers else ""
    yield (
        f"the engine: {plan.num_blocks:,} blocks of {pool.block_size} tokens, {format_exact(pool.bytes_per_block)} each"
        f" ({len(pool.groups)} group{'s' if len(pool.groups) != 1 else ''}{padding});"
        f" one request of {plan.resolved.max_model_len:,} tokens reserves {format_exact(plan.needed_bytes)}"
    )
    wanted = plan.workload.concurrency
    yield f"longest context at {wanted} request{'s' if wanted != 1 else ''}: {plan.longest:,} tokens"
    if plan.load.host_bytes:
        yield f"host memory: {format_size(plan.load.host_bytes)}"


def _arithmetic(plan: VllmPlan) -> Iterator[str]:
    for stage in plan.stages:
        if len(plan.stages) > 1:
            yield f"pipeline stage {stage.stage}"
        yield (
            f"requested = {plan.resolved.gpu_memory_bytes:,} x {plan.utilization}"
            f" = {format_exact(stage.requested_bytes)}"
        )
        for part in stage.inside + stage.outside:
            yield from on_paper(part)
        yield f"kv_cache = requested - the terms inside = {format_exact(stage.available('best'))}"
    for entry in plan.caches:
        yield (
            f"cache of {entry.count} layers: {type(entry.cache).__name__}, {entry.slot_bytes:,} B per token,"
            f" {entry.state_bytes:,} B per sequence"
        )
    pool = plan.pool
    if pool.groups:
        yield (
            f"blocks = {plan.kv_cache_bytes:,} // {pool.bytes_per_block:,} = {plan.num_blocks:,};"
            f" tokens = {plan.kv_tokens:,}; concurrency = {plan.num_blocks:,} /"
            f" {pool.blocks_for(plan.resolved.max_model_len):,} = {plan.max_concurrency:.2f}"
        )


def _inputs(plan: VllmPlan) -> dict[str, object]:
    """Every input with the engine's defaults filled in; null is the engine's own default."""
    resolved, asked = plan.resolved, plan.resolved.asked
    decided: dict[str, object] = {
        "engine": plan.engine,
        "engine_version": plan.engine_version,
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
        "concurrency": plan.workload.concurrency,
        "other_options": list(asked.passed),
        "weight_format": plan.scheme.label,
    }
    return echo(plan.deployment) | decided


def _extra(plan: VllmPlan) -> dict[str, object]:
    asked, outside = plan.resolved.asked, plan.outside
    terms = {component.name: component.best for component in plan.budget.inside}
    # what is left is below zero when the terms exceed the fraction; a size of the user's own replaces it
    stated = asked.kv_cache_memory_bytes is not None or asked.num_gpu_blocks_override is not None
    left = plan.kv_cache_bytes if stated else plan.budget.available("best")
    return {
        "ranks": [
            {"rank": stage.stage, "components": [component_json(part) for part in stage.inside + stage.outside]}
            for stage in plan.stages
        ],
        "budget": {
            "requested_bytes": sum(terms.values()) + left,
            **{f"{name}_bytes": size for name, size in _budget_terms(terms).items()},
            "kv_cache_bytes": left,
        },
        "outside_budget": {
            "driver_total_bytes": outside.driver_total_bytes,
            "context_bytes": outside.context_bytes,
            "cuda_graph_bytes": outside.cuda_graph_bytes,
            "post_profile_bytes": outside.post_profile_bytes,
            "other_bytes": outside.other_bytes,
            "free_bytes": outside.free_bytes,
        },
        "kv_cache": {
            "engine_bytes_per_token": plan.kv_cache_bytes // plan.kv_tokens if plan.kv_tokens else None,
            "block_size": plan.pool.block_size,
            "num_blocks": plan.num_blocks,
            "tokens": plan.kv_tokens,
            "needed_bytes_for_one_request": plan.needed_bytes,
        },
    }


def _budget_terms(terms: dict[str, int]) -> dict[str, int]:
    """The contract's four terms in order, then any other that this version subtracts."""
    order = ("weights", "activation_peak", "non_torch", "cuda_graph")
    named = {name.removesuffix("s") if name == "cuda_graphs" else name: size for name, size in terms.items()}
    return {name: named.pop(name, 0) for name in order} | named
