"""A serving plan for people, and as the JSON contract."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.contract.component import Component
from planner.engines.vllm.command import command_line
from planner.engines.vllm.plan import ServingPlan
from planner.report.bar import Segment, bar
from planner.units import format_exact, format_size, gib

if TYPE_CHECKING:
    from planner.levers.advice import Advice

_VERDICTS = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit"}
_COLOURS = {"fits": 32, "tight": 33, "does_not_fit": 31}
_LABELS = {
    "weights": ("weights", "W", 33),
    "lora_adapters": ("LoRA", "L", 39),
    "activation_peak": ("activations", "A", 208),
    "non_torch": ("non-torch", "N", 244),
    "persistent_buffers": ("runner buffers", "B", 180),
    "unvalidated_version": ("version's band", "v", 245),
    "kv_cache": ("KV cache", "K", 34),
    "context": ("context", "c", 240),
    "nccl_outside": ("communicators", "m", 60),
    "cuda_graphs": ("graphs", "g", 133),
    "post_profile": ("warm-up", "p", 95),
    "other_processes": ("others", "o", 52),
}


def plan_json(plan: ServingPlan, advice: Advice | None = None) -> dict[str, object]:
    """The plan as the JSON contract (docs/json.md): plain values, sizes in bytes.

    Args:
        advice: what to change; without it "levers" and "plans" are empty.
    """
    from planner.report.deployment import deployment_json  # a table need not pay for it

    asked, best = plan.resolved.asked, plan.budget
    terms = {component.name: component.best for component in best.inside}
    outside = plan.outside
    error = plan.startup_error
    # what is left is below zero when the terms exceed the fraction; a size of the user's own replaces it
    stated = asked.kv_cache_memory_bytes is not None or asked.num_gpu_blocks_override is not None
    left = plan.kv_cache_bytes if stated else best.available("best")
    return {
        "schema": 1,
        "model": {
            "id": plan.model.id,
            "parameters": plan.model.parameters,
            "active_parameters": plan.model.active_parameters,
            "architecture": plan.model.spec.architecture,
            "dtype": plan.model.spec.dtype,
            "max_position_embeddings": plan.model.spec.max_position_embeddings,
        },
        "deployment": deployment_json(plan),
        "ranks": [
            {"rank": stage.stage, "components": [_component_json(part) for part in stage.inside + stage.outside]}
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
            "bytes_per_token": plan.sequence.bytes_per_token,
            "bytes_per_sequence": plan.sequence.total_bytes,
            "window_bytes_per_sequence": plan.sequence.window_bytes,
            "state_bytes_per_sequence": plan.sequence.state_bytes,
            "engine_bytes_per_token": plan.kv_cache_bytes // plan.kv_tokens if plan.kv_tokens else None,
            "block_size": plan.pool.block_size,
            "num_blocks": plan.num_blocks,
            "tokens": plan.kv_tokens,
            "max_concurrency": round(plan.max_concurrency, 2),
            "max_model_len_that_fits": plan.longest,
            "needed_bytes_for_one_request": plan.needed_bytes,
        },
        "workload": [
            {"at": point.at, "tokens_per_request": point.tokens_per_request, "concurrency": point.concurrency}
            for point in plan.workload
        ],
        "load": {"gpu_peak_bytes": plan.load.gpu_peak_bytes, "host_bytes": plan.load.host_bytes},
        "verdict": plan.verdict,
        "shortfall_bytes": plan.shortfall_bytes,
        "startup_error": None if error is None else {"kind": error.kind, "message": error.message},
        **_levers_json(advice),
        "command": command_line(plan),
        "notes": list(plan.notes),
    }


def _levers_json(advice: Advice | None) -> dict[str, object]:
    if advice is None:
        return {"levers": [], "plans": []}
    from planner.report.levers import levers_json  # a plan that fits need not pay for it

    return levers_json(advice)


def _budget_terms(terms: dict[str, int]) -> dict[str, int]:
    """The contract's four terms in order, then any other that this version subtracts."""
    order = ("weights", "activation_peak", "non_torch", "cuda_graph")
    named = {name.removesuffix("s") if name == "cuda_graphs" else name: size for name, size in terms.items()}
    return {name: named.pop(name, 0) for name in order} | named


def _component_json(component: Component) -> dict[str, object]:
    return {
        "name": component.name,
        "low": component.low,
        "best": component.best,
        "high": component.high,
        "evidence": component.evidence,
        "formula": component.formula,
        "source": component.source,
    }


def verdict_line(plan: ServingPlan, *, colour: bool = False) -> str:
    """The answer in one line: verdict, model, cards, engine version, cache, concurrency."""
    resolved, asked = plan.resolved, plan.resolved.asked
    word = _VERDICTS[plan.verdict]
    if colour:
        word = f"\x1b[1;{_COLOURS[plan.verdict]}m{word}\x1b[0m"
    cards = asked.tensor_parallel_size * asked.pipeline_parallel_size * asked.data_parallel_size
    card = asked.gpu.name if asked.gpu else "card"
    head = (
        f"{word}: {plan.model.id} on {cards} x {card} ({gib(resolved.gpu_memory_bytes)} GiB),"
        f" vLLM {resolved.profile.version}"
    )
    if plan.startup_error is not None and plan.startup_error.kind == "max_model_len":
        return f"{head}: {resolved.max_model_len:,} tokens are more than the model's {plan.model.longest_request:,}"
    if plan.startup_error is not None:
        return f"{head}: short by {format_size(plan.shortfall_bytes)} per GPU"
    if not plan.pool.groups:
        return f"{head}: this model keeps no cache; {gib(plan.kv_cache_bytes)} GiB of the fraction stays unused"
    line = (
        f"{head}: {gib(plan.kv_cache_bytes)} GiB for KV cache = {plan.kv_tokens:,} tokens ="
        f" {plan.max_concurrency:.2f} requests of {resolved.max_model_len:,} tokens"
    )
    refused = [point for point in plan.workload if point.tokens_per_request > resolved.max_model_len]
    if refused and plan.verdict == "does_not_fit" and not plan.shortfall_bytes:
        line += f"; requests of {refused[-1].tokens_per_request:,} tokens are refused"
    elif plan.verdict == "does_not_fit":
        line += f", {asked.concurrency:,} wanted: short by {format_size(plan.shortfall_bytes)} per GPU"
    return line


def plan_table(
    plan: ServingPlan,
    *,
    advice: Advice | None = None,
    colour: bool = False,
    explain: bool = False,
    markdown: bool = False,
) -> str:
    """The plan for people: verdict, bar, breakdown per GPU, cache, workload, what to change, notes, command."""
    lines = [verdict_line(plan, colour=colour and not markdown), ""]
    if plan.startup_error is not None:
        lines += [f"the engine would stop with ({plan.startup_error.kind}):", f"  {plan.startup_error.message}", ""]
    if not markdown:
        lines += [bar(_segments(plan), plan.resolved.gpu_memory_bytes, colour=colour), ""]
    style = "pipe" if markdown else "simple"
    for stage in plan.stages:
        if len(plan.stages) > 1:
            fullest = ", the fullest" if stage.stage == plan.fullest else ""
            lines.append(f"pipeline stage {stage.stage} ({len(range(*stage.layers.indices(1 << 20)))} layers{fullest})")
        lines += [_breakdown(plan, stage.stage, style), ""]
    if explain:
        lines += [explanation(plan), ""]
    lines += [_cache_lines(plan), ""]
    lines += [_workload_table(plan, style), ""]
    if advice is not None:
        from planner.report.levers import levers_table

        lines += [levers_table(advice, markdown=markdown), ""]
    if plan.notes:
        lines += [*(f"note: {note}" for note in plan.notes), ""]
    lines.append(command_line(plan))
    return "\n".join(lines)


def _segments(plan: ServingPlan) -> list[Segment]:
    sizes = {component.name: component.best for component in plan.budget.inside + plan.budget.outside}
    sizes["kv_cache"] = plan.kv_cache_bytes
    return [Segment(label, sizes.get(name, 0), letter, tint) for name, (label, letter, tint) in _LABELS.items()]


def _breakdown(plan: ServingPlan, index: int, style: str) -> str:
    stage = plan.stages[index]
    rows: list[Sequence[str]] = [
        (
            f"requested: {gib(plan.resolved.gpu_memory_bytes)} x {plan.utilization}",
            "",
            gib(stage.requested_bytes),
            "",
            "",
        )
    ]
    for component in stage.inside:
        rows.append(_row(component, "- "))
    low, best, high = (stage.available(side) for side in ("high", "best", "low"))
    if plan.resolved.asked.kv_cache_memory_bytes is not None:
        low = best = high = plan.resolved.asked.kv_cache_memory_bytes
    rows.append(("= KV cache", gib(low), gib(best), gib(high), ""))
    rows.append(("outside the fraction", "", gib(plan.resolved.gpu_memory_bytes - stage.requested_bytes), "", ""))
    for component in stage.outside:
        rows.append(_row(component, "- "))
    rows.append(("= left on the card", "", gib(plan.free_bytes(index)), "", ""))
    return _table(
        rows,
        headers=("GiB per GPU", "low", "best", "high", "evidence"),
        style=style,
        colalign=("left", "right", "right", "right", "left"),
    )


def _table(rows: Sequence[Sequence[str]], *, headers: Sequence[str], style: str, colalign: Sequence[str]) -> str:
    from tabulate import tabulate  # JSON and CSV need not pay for it

    return tabulate(rows, headers=headers, tablefmt=style, disable_numparse=True, colalign=colalign)


def _row(component: Component, sign: str) -> Sequence[str]:
    label = _LABELS.get(component.name, (component.name,))[0]
    return (
        f"{sign}{label}", gib(component.low), gib(component.best), gib(component.high), component.evidence,
    )  # fmt: skip


def _cache_lines(plan: ServingPlan) -> str:
    cost, pool = plan.sequence, plan.pool
    if not pool.groups:
        return "no KV cache: how many requests run at once is max_num_seqs"
    lines = [
        f"a sequence: {format_exact(cost.bytes_per_token)} per token, {format_exact(cost.total_bytes)} at"
        f" {plan.resolved.max_model_len:,} tokens on each GPU ({plan.cache_format.name} cache)"
    ]
    if cost.window_bytes or cost.state_bytes:
        lines.append(
            f"  of which windows {format_exact(cost.window_bytes)}, recurrent states {format_exact(cost.state_bytes)}"
        )
    padding = f", {pool.padding_layers} padding layers" if pool.padding_layers else ""
    lines.append(
        f"the engine: {plan.num_blocks:,} blocks of {pool.block_size} tokens, {format_exact(pool.bytes_per_block)} each"
        f" ({len(pool.groups)} group{'s' if len(pool.groups) != 1 else ''}{padding});"
        f" one request of {plan.resolved.max_model_len:,} tokens reserves {format_exact(plan.needed_bytes)}"
    )
    lines.append(
        f"longest context at {plan.resolved.asked.concurrency} request"
        f"{'s' if plan.resolved.asked.concurrency != 1 else ''}: {plan.longest:,} tokens"
    )
    if plan.load.host_bytes:
        lines.append(f"host memory: {format_size(plan.load.host_bytes)}")
    return "\n".join(lines)


def _at(plan: ServingPlan, name: str, tokens: int) -> str:
    names = {"max_model_len": "max_model_len (admission limit)", "mean": "mean (no admission limit)", "all": "as given"}
    refused = tokens > plan.resolved.max_model_len
    return f"{names.get(name, name)} (too long: refused)" if refused else names.get(name, name)


def _workload_table(plan: ServingPlan, style: str) -> str:
    rows = [
        (_at(plan, point.at, point.tokens_per_request), f"{point.tokens_per_request:,}", f"{point.concurrency:,}")
        for point in plan.workload
    ]
    return _table(
        rows,
        headers=("all requests at", "tokens", "at once"),
        style=style,
        colalign=("left", "right", "right"),
    )


def explanation(plan: ServingPlan) -> str:
    """Every component as on paper: formula, numbers put in, result, evidence, source."""
    lines = []
    for stage in plan.stages:
        if len(plan.stages) > 1:
            lines.append(f"pipeline stage {stage.stage}")
        lines.append(
            f"requested = {plan.resolved.gpu_memory_bytes:,} x {plan.utilization}"
            f" = {format_exact(stage.requested_bytes)}"
        )
        for component in stage.inside + stage.outside:
            lines += [
                f"{component.name} = {format_exact(component.best)} [{component.evidence}]",
                f"    {component.formula}",
                f"    source: {component.source}",
            ]
        lines.append(f"kv_cache = requested - the terms inside = {format_exact(stage.available('best'))}")
    for entry in plan.caches:
        lines.append(
            f"cache of {entry.count} layers: {type(entry.cache).__name__}, {entry.slot_bytes:,} B per token,"
            f" {entry.state_bytes:,} B per sequence"
        )
    pool = plan.pool
    lines.append(
        f"blocks = {plan.kv_cache_bytes:,} // {pool.bytes_per_block:,} = {plan.num_blocks:,};"
        f" tokens = {plan.kv_tokens:,}; concurrency = {plan.num_blocks:,} /"
        f" {pool.blocks_for(plan.resolved.max_model_len):,} = {plan.max_concurrency:.2f}"
    )
    return "\n".join(lines)


def plan_csv(plan: ServingPlan) -> str:
    """The breakdown as CSV: a row for each component of each rank, sizes in bytes."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("rank", "place", "component", "low_bytes", "best_bytes", "high_bytes", "evidence"))
    for stage in plan.stages:
        for place, components in (("inside", stage.inside), ("outside", stage.outside)):
            for part in components:
                writer.writerow((stage.stage, place, part.name, part.low, part.best, part.high, part.evidence))
        low, best, high = (stage.available(side) for side in ("high", "best", "low"))
        writer.writerow((stage.stage, "inside", "kv_cache", low, best, high, "derived"))
    return buffer.getvalue().rstrip("\n")


def render_plan(
    plan: ServingPlan, *, format: str, advice: Advice | None = None, colour: bool = False, explain: bool = False
) -> str:
    """The plan in the format asked for ("table", "json", "csv" or "markdown")."""
    if format == "json":
        return json.dumps(plan_json(plan, advice), indent=1)
    if format == "csv":
        return plan_csv(plan)
    return plan_table(plan, advice=advice, colour=colour, explain=explain, markdown=format == "markdown")
