"""A start-up log beside the plan of the same start: what was read, planned and measured figures, errors."""

from __future__ import annotations

import json
from collections.abc import Sequence

from planner.contract.plan import ServingPlan
from planner.report.rows import JSON_SCHEMA, Column, plain, render_rows
from planner.validation.cases import Case
from planner.validation.log import StartLog
from planner.validation.scoring import Row, Unscored


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


def log_object(
    log: StartLog, case: Case | None, rows: Sequence[Row], unscored: Sequence[Unscored], plan: ServingPlan | None
) -> dict[str, object]:
    """Everything as one object; `case` is a measured case as `--cases` reads it."""
    found: dict[str, object] = {
        "schema": JSON_SCHEMA,
        "query": {"engine": log.engine, "lines": log.lines, "ranks": log.ranks},
        "flags": {name.lstrip("."): value for name, value in log.flags.items()},
        "printed": {name: log.figure(name) for name in log.figures} | dict(log.words),
        "by_rank": {name: ranks for name, ranks in log.figures.items() if len(ranks) > 1},
        "errors": [{"kind": error.kind, "text": error.text, "line": error.line} for error in log.errors],
        "rows": comparison_rows(rows),
        "not_compared": [f"{item.mode}: {item.reason}" for item in unscored],
    }
    if plan is not None:
        found["planned_error"] = None if plan.startup_error is None else plan.startup_error.message
    if case is not None:
        found["case"] = {
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
    return found


def render_log(
    log: StartLog,
    case: Case | None,
    rows: Sequence[Row],
    unscored: Sequence[Unscored],
    plan: ServingPlan | None,
    *,
    format: str,
) -> str:
    """The comparison in a format; the table says first what was read and ends with errors."""
    if format == "json":
        return json.dumps(log_object(log, case, rows, unscored, plan), indent=2)
    columns = [
        Column(field="figure", heading="figure"),
        Column(field="from", heading="from"),
        Column(field="unit", heading="unit"),
        Column(field="planned", heading="planned", right=True, text=_number),
        Column(field="measured", heading="measured", right=True, text=_number),
        Column(field="difference", heading="difference", right=True, text=_number),
        Column(field="error_percent", heading="error %", right=True, text=_number),
    ]
    table = render_rows(comparison_rows(rows), columns=columns, format=format, query={"engine": log.engine})
    if format != "table":
        return table
    version = log.words.get("version", "version not printed")
    parts = [f"{log.engine} {version}, {log.lines:,} lines, {log.ranks} rank(s)"]
    if log.flags:
        parts.append("flags: " + ", ".join(f"{name.lstrip('.')}={value}" for name, value in log.flags.items()))
    parts.append("printed: " + ", ".join(f"{name} {_number(log.figure(name))}" for name in log.figures))
    if rows:
        parts += ["", table]
    parts += [f"not compared: {item.mode}: {item.reason}" for item in unscored]
    parts += [f"error in the log, line {error.line}: {error.text}" for error in log.errors]
    if plan is not None and plan.startup_error is not None:
        parts.append(f"planned error: {plan.startup_error.message}")
    return "\n".join(parts)


def _number(value: object) -> str:
    if isinstance(value, float) and value != int(value):
        return f"{value:,.2f}"
    return f"{int(value):,}" if isinstance(value, float) else plain(value)
