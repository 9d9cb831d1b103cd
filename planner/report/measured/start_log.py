"""A start-up log beside the plan of the same start: what was read, planned and measured figures, errors."""

from __future__ import annotations

import json
from collections.abc import Sequence

from planner.contract.lever import Effect
from planner.contract.start_log import MeasuredStart
from planner.report.measured.where_it_went import gives_back, shares, where_it_went
from planner.report.rows import JSON_SCHEMA, Column, plain, render_rows
from planner.validation.logged import LoggedStart
from planner.validation.scoring import Row


def comparison_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    """One row for each figure that was planned and measured."""
    return [
        {
            "figure": row.component,
            "from": row.mode,
            "unit": row.unit,
            "planned": round(row.planned, 4),
            "measured": round(row.measured, 4),
            "difference": round(row.difference, 4),
            "error_percent": round(100 * row.error, 2) if row.measured else None,
        }
        for row in rows
    ]


def log_object(found: LoggedStart, effects: Sequence[Effect] = ()) -> dict[str, object]:
    """Everything as one object; `case` is a measured case as `--cases` reads it.

    Args:
        effects: what each lever alone would change; the largest are what gives cache back.
    """
    log, start, case = found.log, found.log.start, found.case
    result: dict[str, object] = {
        "schema": JSON_SCHEMA,
        "query": {"engine": log.engine.name, "lines": log.lines, "ranks": start.ranks},
        "flags": _flags(start),
        "printed": {**start.measured, **({"version": start.version} if start.version else {})},
        "by_rank": {name: ranks for name, ranks in start.by_rank.items() if len(ranks) > 1},
        "errors": [{"kind": error.kind, "text": error.text, "line": error.line} for error in start.errors],
        "rows": comparison_rows(found.rows),
        "not_compared": [f"{item.mode}: {item.reason}" for item in found.unscored],
    }
    if found.plan is not None and found.card_known:
        result["where_it_went"] = shares(found.plan, start.measured)
        result["gives_back"] = gives_back(effects)
        result["planned_error"] = None if found.plan.startup_error is None else found.plan.startup_error.message
    if case is not None:
        result["case"] = {
            "id": case.id,
            "source": case.source,
            "model": case.model,
            "config": case.config,
            "quality": case.quality,
            "deployment": dict(case.deployment),
            "measured": dict(case.measured),
            "inferred": {},
            "notes": "",
        }
    return result


def _flags(start: MeasuredStart) -> dict[str, object]:
    other = start.stated.get("other_flags")
    named = {name: value for name, value in start.stated.items() if name != "other_flags"}
    return {**named, **(other if isinstance(other, dict) else {})}


def render_log(found: LoggedStart, *, format: str, effects: Sequence[Effect] = ()) -> str:
    """The comparison in a format; the table says first what was read and ends with errors."""
    if format == "json":
        return json.dumps(log_object(found, effects), indent=2)
    log, start, plan = found.log, found.log.start, found.plan
    columns = [
        Column(field="figure", heading="figure"),
        Column(field="from", heading="from"),
        Column(field="unit", heading="unit"),
        Column(field="planned", heading="planned", right=True, text=_number),
        Column(field="measured", heading="measured", right=True, text=_number),
        Column(field="difference", heading="difference", right=True, text=_number),
        Column(field="error_percent", heading="error %", right=True, text=_number),
    ]
    table = render_rows(comparison_rows(found.rows), columns=columns, format=format, query={"engine": log.engine.name})
    if format != "table":
        return table
    version = start.version or "version not printed"
    parts = [f"{log.engine.name} {version}, {log.lines:,} lines, {start.ranks} rank(s)"]
    flags = _flags(start)
    if flags:
        parts.append("flags: " + ", ".join(f"{name}={value}" for name, value in flags.items()))
    parts.append("printed: " + ", ".join(f"{name} {_number(value)}" for name, value in start.measured.items()))
    if found.rows:
        parts += ["", table]
    parts += [f"not compared: {item.mode}: {item.reason}" for item in found.unscored]
    parts += [f"error in the log, line {error.line}: {error.text}" for error in start.errors]
    if plan is not None and found.card_known:
        parts += ["", *where_it_went(plan, start.measured, effects)]
    if plan is not None and found.card_known and plan.startup_error is not None:
        parts.append(f"planned error: {plan.startup_error.message}")
    return "\n".join(parts)


def _number(value: object) -> str:
    if isinstance(value, float) and value != int(value):
        return f"{value:,.2f}"
    return f"{int(value):,}" if isinstance(value, float) else plain(value)
