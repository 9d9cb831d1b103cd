"""A serving plan of any engine, for people and as the JSON contract."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from planner.contract.engine import command_line, find_engine
from planner.contract.plan import VERDICTS, Device, ServingPlan
from planner.contract.section import LABELS, Breakdown, Section, component_json, label_of
from planner.report.bar import Segment, bar
from planner.report.printer import Heading, Width, command, printed, table
from planner.report.rows import JSON_SCHEMA
from planner.report.verdict import coloured
from planner.units import gib

if TYPE_CHECKING:
    from planner.levers.advice import Advice

# Letter and terminal colour of the components that most plans have.
_DRAWN = {
    "weights": ("W", 33),
    "lora_adapters": ("L", 39),
    "activation_peak": ("A", 208),
    "non_torch": ("N", 244),
    "persistent_buffers": ("B", 180),
    "unvalidated_version": ("v", 245),
    "kv_cache": ("K", 34),
    "context": ("c", 240),
    "nccl_outside": ("m", 60),
    "cuda_graphs": ("g", 133),
    "post_profile": ("p", 95),
    "other_processes": ("o", 52),
}
_OTHER_TINTS = (67, 73, 103, 109, 139, 145, 66, 72, 102, 108, 138, 144)


def plan_json(plan: ServingPlan, advice: Advice | None = None) -> dict[str, object]:
    """The plan as the JSON contract (docs/json.md): plain values, sizes in bytes.

    Args:
        advice: what to change; without it "levers" and "plans" are empty.
    """
    told, error, cache = find_engine(plan.engine).section(plan), plan.startup_error, plan.cache
    extra = dict(told.extra)
    kept: dict[str, object] = {
        "bytes_per_token": cache.bytes_per_token,
        "bytes_per_sequence": cache.bytes_per_sequence,
        "window_bytes_per_sequence": cache.window_bytes_per_sequence,
        "state_bytes_per_sequence": cache.state_bytes_per_sequence,
        "reserved_bytes": cache.reserved_bytes,
        "tokens": cache.tokens,
        "max_concurrency": round(cache.max_concurrency, 2),
        "max_model_len_that_fits": cache.longest,
    }
    own_cache = extra.pop("kv_cache", {})
    assert isinstance(own_cache, dict)
    return {
        "schema": JSON_SCHEMA,
        "engine": plan.engine,
        "engine_version": plan.engine_version,
        "model": {
            "id": plan.model.id,
            "parameters": plan.model.parameters,
            "active_parameters": plan.model.active_parameters,
            "architecture": plan.model.spec.architecture,
            "dtype": plan.model.spec.dtype,
            "max_position_embeddings": plan.model.spec.max_position_embeddings,
        },
        "deployment": dict(told.inputs),
        "devices": [_device_json(device) for device in plan.devices],
        **extra,
        "kv_cache": kept | own_cache,
        "workload": [
            {"at": point.at, "tokens_per_request": point.tokens_per_request, "concurrency": point.concurrency}
            for point in plan.points
        ],
        "load": {"gpu_peak_bytes": plan.load.gpu_peak_bytes, "host_bytes": plan.load.host_bytes},
        "verdict": plan.verdict,
        "shortfall_bytes": plan.shortfall_bytes,
        "startup_error": None if error is None else {"kind": error.kind, "message": error.message},
        "unknown": list(plan.unknown),
        **_levers_json(advice),
        "command": command_line(plan),
        "notes": list(plan.notes),
    }


def _device_json(device: Device) -> dict[str, object]:
    return {
        "name": device.name,
        "kind": device.kind,
        "count": device.count,
        "total_bytes": device.total_bytes,
        "components": [component_json(part) for part in device.components],
        "cache_bytes": device.cache_bytes,
        "free_bytes": device.free_bytes,
    }


def _levers_json(advice: Advice | None) -> dict[str, object]:
    if advice is None:
        return {"levers": [], "plans": []}
    from planner.report.levers import levers_json  # a plan that fits need not pay for it

    return levers_json(advice)


def verdict_line(plan: ServingPlan, told: Section | None = None, *, colour: bool = False) -> str:
    """The answer in one line: verdict, model, cards, engine version, cache, concurrency."""
    engine = find_engine(plan.engine)
    told = told or engine.section(plan)
    word = coloured(plan.verdict) if colour else VERDICTS[plan.verdict]
    cards = [device for device in plan.devices if device.kind == "gpu"]
    count = sum(device.count for device in cards)
    first = cards[0] if cards else plan.devices[0]
    reason = f"; unknown: {'; '.join(plan.unknown)}" if plan.unknown else ""
    return (
        f"{word}: {plan.model.id} on {count} x {first.name} ({gib(first.total_bytes)} GiB),"
        f" {engine.title} {plan.engine_version}: {told.headline}{reason}"
    )


def plan_table(
    plan: ServingPlan,
    *,
    advice: Advice | None = None,
    colour: bool = False,
    explain: bool = False,
    markdown: bool = False,
    width: Width = "terminal",
) -> str:
    """The plan for people: verdict, bar, breakdown per device, cache, workload, what to change, notes, command."""
    told = find_engine(plan.engine).section(plan)
    lines = [verdict_line(plan, told, colour=colour and not markdown), ""]
    if plan.startup_error is not None:
        lines += [f"the engine would stop with ({plan.startup_error.kind}):", f"  {plan.startup_error.message}", ""]
    if not markdown:
        for device in plan.devices:
            if device.total_bytes and device.components:
                lines += [bar(_segments(device), device.total_bytes, colour=colour), ""]
    for breakdown in told.breakdowns:
        title = [breakdown.title] if breakdown.title else []
        lines += [*title, _breakdown(breakdown, markdown=markdown, width=width), ""]
    if explain:
        lines += [*told.arithmetic, ""]
    lines += [*told.lines, "", _workload_table(plan, markdown=markdown, width=width), ""]
    if advice is not None:
        from planner.report.levers import levers_table

        lines += [levers_table(advice, markdown=markdown, width=width), ""]
    if plan.notes:
        lines += [*(f"note: {note}" for note in plan.notes), ""]
    return printed(lines, None if markdown else width) + "\n" + command(command_line(plan), width)


def _segments(device: Device) -> list[Segment]:
    sizes = {part.name: part.best for part in device.components}
    if device.cache_bytes:
        sizes["kv_cache"] = device.cache_bytes
    order = [name for name in LABELS if name in sizes] + [name for name in sizes if name not in LABELS]
    found: list[Segment] = []
    for name in order:
        drawn = (label_of(name)[0], _OTHER_TINTS[len(found) % len(_OTHER_TINTS)])
        letter, tint = _DRAWN.get(name, drawn)
        found.append(Segment(label_of(name), sizes[name], letter, tint))
    return found


def _breakdown(breakdown: Breakdown, *, markdown: bool, width: Width) -> str:
    rows = []
    for row in breakdown.rows:
        sizes = ("" if size is None else gib(size) for size in (row.low, row.best, row.high))
        rows.append((f"{row.sign} {row.label}".strip(), *sizes, row.evidence))
    sides = [Heading(title=side, right=True) for side in ("low", "best", "high")]
    headings = [Heading(title="GiB per GPU"), *sides, Heading(title="evidence")]
    return table(rows, headings, markdown=markdown, width=width)


def _at(plan: ServingPlan, name: str, tokens: int) -> str:
    names = {"max_model_len": "max_model_len (admission limit)", "mean": "mean (no admission limit)", "all": "as given"}
    refused = tokens > plan.max_model_len
    return f"{names.get(name, name)} (too long: refused)" if refused else names.get(name, name)


def _workload_table(plan: ServingPlan, *, markdown: bool, width: Width) -> str:
    rows = [
        (_at(plan, point.at, point.tokens_per_request), f"{point.tokens_per_request:,}", f"{point.concurrency:,}")
        for point in plan.points
    ]
    headings = [
        Heading(title="all requests at"),
        Heading(title="tokens", right=True),
        Heading(title="at once", right=True),
    ]
    return table(rows, headings, markdown=markdown, width=width)


def plan_csv(plan: ServingPlan) -> str:
    """The breakdown as CSV: a row for each component of each device, sizes in bytes."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("device", "kind", "component", "low_bytes", "best_bytes", "high_bytes", "evidence"))
    for index, device in enumerate(plan.devices):
        for part in device.components:
            writer.writerow((index, device.kind, part.name, part.low, part.best, part.high, part.evidence))
        if device.kind == "gpu" and not any(part.name == "kv_cache" for part in device.components):
            writer.writerow(
                (index, device.kind, "kv_cache", device.cache_bytes, device.cache_bytes, device.cache_bytes, "derived")
            )
    return buffer.getvalue().rstrip("\n")


def render_plan(
    plan: ServingPlan,
    *,
    format: str,
    advice: Advice | None = None,
    colour: bool = False,
    explain: bool = False,
    width: Width = "terminal",
) -> str:
    """The plan in the format asked for ("table", "json", "csv", "markdown" or "html")."""
    if format == "json":
        return json.dumps(plan_json(plan, advice), indent=1)
    if format == "csv":
        return plan_csv(plan)
    if format == "html":
        from planner.report.html.results import serving_page  # only a page pays for it

        return serving_page(plan, advice)
    markdown = format == "markdown"
    return plan_table(plan, advice=advice, colour=colour, explain=explain, markdown=markdown, width=width)
