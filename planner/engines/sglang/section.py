"""SGLang's account of its plan: the static share, the pools, what lives beside them, and the fractions that work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.contract.inputs import echo
from planner.contract.section import Breakdown, Row, Section, component_row, default_section
from planner.units import format_exact, format_size, gib

if TYPE_CHECKING:
    from planner.engines.sglang.plan import Budget, SglangPlan


def section(plan: SglangPlan) -> Section:
    """What reports print of a plan beside what every plan has."""
    fractions = plan.fractions()
    resolved, pools = plan.resolved, plan.pools
    states = pools.states
    return default_section(
        plan,
        headline=_headline(plan),
        breakdowns=tuple(_breakdown(plan, entry) for entry in plan.budgets),
        lines=tuple(_lines(plan)),
        inputs=echo(plan.deployment)
        | {
            "context_length": resolved.context_length,
            "mem_fraction_static": resolved.mem_fraction_static,
            "chunked_prefill_size": resolved.chunked_prefill_size,
            "cuda_graph_max_bs": resolved.graph_max_batch,
            "max_running_requests": pools.requests.count,
            "page_size": resolved.page_size,
            "dtype": resolved.dtype,
            "kv_cache_dtype": resolved.cache_format.name,
        },
        extra={
            "pools": {
                "max_total_num_tokens": pools.tokens,
                "window_tokens": pools.windowed_tokens,
                "cell_bytes": plan.budget.stage.pool_inputs.cell.allocated_bytes,
                "cache_bytes": pools.allocated_bytes,
                "draft_bytes": pools.draft_bytes,
                "state_slots": states.slots if states is not None else None,
                "state_bytes": states.allocated_bytes if states is not None else 0,
                "max_running_requests": pools.requests.count,
                "capped_by": pools.requests.capped_by,
            },
            "free_before_load_bytes": plan.budget.stage.free_before(),
            "free_after_load_bytes": plan.budget.stage.free_after(),
            "mem_fraction_static": {
                "used": resolved.mem_fraction_static,
                "least": fractions.least,
                "greatest": fractions.greatest,
                "starts_from": fractions.starts,
            },
        },
    )


def _headline(plan: SglangPlan) -> str:
    error, pools = plan.startup_error, plan.pools
    if error is not None and error.refused:
        return error.message
    if error is not None:
        return f"{cure(plan)}; short by {format_size(plan.shortfall_bytes)} per GPU"
    line = (
        f"{gib(pools.total_bytes)} GiB for pools = {pools.tokens:,} tokens, {pools.requests.count:,} requests at once ="
        f" {plan.cache.max_concurrency:.2f} requests of {plan.max_model_len:,} tokens"
    )
    if plan.verdict == "does_not_fit":
        line += f", {plan.workload.concurrency:,} wanted: short by {format_size(plan.shortfall_bytes)} per GPU"
    return line


def cure(plan: SglangPlan) -> str:
    """What of the two opposite failures this is."""
    error = plan.startup_error
    if error is not None and error.kind == "no_cache":
        return "the static share has no room for a pool: a HIGHER --mem-fraction-static is wanted"
    if error is not None and error.kind == "outside_budget":
        return "graphs and requests run out of memory beside the static share: a LOWER --mem-fraction-static is wanted"
    return "the weights do not go into the free memory"


def _breakdown(plan: SglangPlan, entry: Budget) -> Breakdown:
    stage, pools = entry.stage, entry.pools["best"]
    title = f"pipeline stage {stage.index}" if len(plan.budgets) > 1 else ""
    before = stage.free_before()
    rows = [
        Row(label="total", best=stage.total_bytes),
        *(component_row(part) for part in stage.before),
        Row(
            label="free before loading",
            sign="=",
            low=stage.free_before("high"),
            best=before,
            high=stage.free_before("low"),
        ),
        *(component_row(part) for part in stage.static),
        Row(
            label=f"free after loading; pools of {stage.fraction:.4g} x {gib(before)}",
            sign="=",
            low=stage.free_after("high"),
            best=stage.free_after(),
            high=stage.free_after("low"),
        ),
    ]
    rows += _pool_rows(pools)
    rows += [component_row(part) for part in entry.outside]
    rows.append(Row(label="left", sign="=", low=entry.left["high"], best=entry.left["best"], high=entry.left["low"]))
    return Breakdown(title=title, rows=tuple(rows))


def _pool_rows(pools: object) -> Iterator[Row]:
    from planner.engines.sglang.pool.pools import Pools

    assert isinstance(pools, Pools)
    yield Row(label="token pool", sign="-", best=pools.allocated_bytes, evidence="derived")
    if pools.draft_bytes:
        yield Row(label="draft's pool", sign="-", best=pools.draft_bytes, evidence="derived")
    if pools.states is not None:
        yield Row(
            label=f"{pools.states.slots} state slots", sign="-", best=pools.states.allocated_bytes, evidence="derived"
        )
        if pools.states.draft_bytes:
            yield Row(label="states of drafts", sign="-", best=pools.states.draft_bytes, evidence="derived")


def _lines(plan: SglangPlan) -> Iterator[str]:
    inputs, pools, cache = plan.budget.stage.pool_inputs, plan.pools, plan.cache
    yield f"a token: {inputs.cell.formula}"
    if pools.windowed_tokens is not None:
        yield f"two pools: {pools.tokens:,} tokens in full, {pools.windowed_tokens:,} of the windows"
    if pools.states is not None:
        yield (
            f"states: {format_exact(inputs.slot_bytes)} a slot, {pools.states.slots} slots"
            f" ({inputs.states.per_request if inputs.states else 1} a running request)"
        )
    yield (
        f"longest context at {plan.workload.concurrency} request{'s' if plan.workload.concurrency != 1 else ''}:"
        f" {cache.longest:,} tokens"
    )
    fractions = plan.fractions()
    if fractions.works:
        yield f"--mem-fraction-static works from {fractions.least:g} to {fractions.greatest:g}"
    elif fractions.starts is None:
        yield "no --mem-fraction-static starts this: the weights leave nothing"
    else:
        least = f"{fractions.least:g}" if fractions.least is not None else "none"
        greatest = f"{fractions.greatest:g}" if fractions.greatest is not None else "none"
        yield (
            f"no --mem-fraction-static works: the pools want at least {least}, what lives beside them at most"
            f" {greatest} (it starts from {fractions.starts:g})"
        )
