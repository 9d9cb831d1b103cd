"""Scores against measured cases, for people and programs, and the accuracy page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from planner.contract.start_log import COMMAND_LINE
from planner.engines.vllm.log.beside import GIVEN_KV
from planner.report.rows import JSON_SCHEMA, Column, render_rows
from planner.validation.probed import PROBE
from planner.validation.reasons import reason_for
from planner.validation.scoring import MEASURED, Row, Statistics, Unscored, statistics

PROBED = (
    "weights",
    "kv_cache",
    "prefill_peak",
    "gradients",
    "optimizer",
    "saved_activations",
    "forward_peak",
    "backward_peak",
    "step_peak",
    "peak_allocated",
)
COMPONENTS = (
    ("weights", COMMAND_LINE),
    ("activation_peak", COMMAND_LINE),
    ("non_torch", COMMAND_LINE),
    ("kv_cache", COMMAND_LINE),
    ("concurrency", COMMAND_LINE),
    ("tokens", GIVEN_KV),
    ("concurrency given KV", GIVEN_KV),
    ("needed for one request", GIVEN_KV),
    ("estimated maximum length", GIVEN_KV),
    *((figure, PROBE) for figure in PROBED),
)

# So many cases are named for each reason in the table
_FEW = 3

_KEYS: Mapping[str, Callable[[Row], str]] = {
    "component": lambda row: "all",
    "model": lambda row: row.case.config or row.case.model,
    "version": lambda row: row.group[-1],
    "gpu": lambda row: str(row.case.given("gpu") or "not stated"),
}


def summary_rows(rows: Sequence[Row], *, by: str = "component") -> list[dict[str, object]]:
    """One row for each component (and key, when `by` is model, version or gpu): errors as percentages.

    Raises:
        KeyError: an unknown `by`.
    """
    key = _KEYS[by]
    found: list[dict[str, object]] = []
    present = dict.fromkeys((row.component, row.mode) for row in rows)
    for component, mode in dict.fromkeys([*COMPONENTS, *present]):
        mine = [row for row in rows if row.component == component and row.mode == mode]
        for value in sorted({key(row) for row in mine}):
            errors = statistics([row for row in mine if key(row) == value])
            if errors is not None:
                keyed = {} if by == "component" else {by: value}
                found.append({"component": component, "mode": mode, **keyed, **_statistics_row(errors)})
    return found


def _statistics_row(errors: Statistics) -> dict[str, object]:
    return {
        "n": errors.n,
        "mean_absolute_percent": round(100 * errors.mean_absolute, 3),
        "median_percent": round(100 * errors.median, 3),
        "percentile_90_percent": round(100 * errors.percentile_90, 3),
        "worst_percent": round(100 * errors.worst, 2),
        "worst_case": errors.worst_case,
        "signed_mean_percent": round(100 * errors.signed_mean, 3),
        "optimistic_share": round(errors.optimistic, 3),
        "mean_absolute_difference": round(errors.mean_absolute_difference, 4),
        "worst_difference": round(errors.worst_difference, 3),
    }


def _two(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "" if value is None else str(value)


def render_summary(
    rows: Sequence[Row], unscored: Sequence[Unscored], *, by: str, format: str, query: Mapping[str, object]
) -> str:
    """The summary in a format; the table ends with why cases were left out."""
    keyed = [] if by == "component" else [Column(field=by, heading=by)]
    columns = [
        Column(field="component", heading="figure"),
        Column(field="mode", heading="from"),
        *keyed,
        Column(field="n", heading="n", right=True),
        Column(field="mean_absolute_percent", heading="mean abs %", right=True, text=_two),
        Column(field="median_percent", heading="median %", right=True, text=_two),
        Column(field="percentile_90_percent", heading="p90 %", right=True, text=_two),
        Column(field="worst_percent", heading="worst %", right=True, text=_two),
        Column(field="optimistic_share", heading="optimistic", right=True, text=_two),
        Column(field="mean_absolute_difference", heading="mean abs", right=True, text=_two),
        Column(field="worst_case", heading="worst case"),
    ]
    found = summary_rows(rows, by=by)
    if format == "json":
        document = {
            "schema": JSON_SCHEMA,
            "query": dict(query),
            "rows": found,
            "unscored": unscored_rows(unscored),
        }
        return json.dumps(document, indent=2, ensure_ascii=False)
    text = render_rows(found, columns=columns, format=format, query=query)
    if format == "csv" or not unscored:
        return text
    lines = [f"- {line}" for line in reason_lines(unscored, most=_FEW)]
    return "\n".join([text, "", "Not scored (--unscored lists every case):", "", *lines])


def each_rows(rows: Sequence[Row], unscored: Sequence[Unscored]) -> list[dict[str, object]]:
    """Every figure of every case, planned beside measured, and every case that could not be compared, with the reason.

    Sizes in GiB, cache sizes in tokens; `why` names the term believed responsible for a miss.
    """
    found: list[dict[str, object]] = [
        {
            "case": row.case.id,
            "quality": row.case.quality,
            "model": row.case.config or row.case.model,
            "release": row.group[-1],
            "gpu": str(row.case.given("gpu") or ""),
            "figure": row.component,
            "from": row.mode,
            "unit": row.unit,
            "planned": round(row.planned, 4),
            "measured": round(row.measured, 4),
            "difference": round(row.difference, 4),
            "error_percent": round(100 * row.error, 2) if row.measured else None,
            "why": reason_for(row) if is_miss(row) else "",
        }
        for row in rows
    ]
    for item in unscored:
        if item.mode != MEASURED:
            found.append(
                {
                    "case": item.case.id,
                    "quality": item.case.quality,
                    "model": item.case.config or item.case.model,
                    "release": str(item.case.given("engine_version") or ""),
                    "gpu": str(item.case.given("gpu") or ""),
                    "figure": "all" if item.mode == "all" else "",
                    "from": item.mode,
                    "unit": "",
                    "planned": None,
                    "measured": None,
                    "difference": None,
                    "error_percent": None,
                    "why": f"not scored: {item.reason}",
                }
            )
    return found


def render_each(rows: Sequence[Row], unscored: Sequence[Unscored], *, format: str, query: Mapping[str, object]) -> str:
    """Every case with its errors, in a format."""
    right = ("planned", "measured", "difference", "error_percent")
    names = ("case", "quality", "release", "gpu", "figure", "from", "unit", *right, "model", "why")
    columns = [
        Column(field=name, heading=name.replace("_percent", " %"), right=name in right, text=_two) for name in names
    ]
    return render_rows(each_rows(rows, unscored), columns=columns, format=format, query=query)


def unscored_rows(unscored: Sequence[Unscored]) -> list[dict[str, object]]:
    """One row for each case, or mode of a case, that was not scored, and why."""
    return [
        {"id": item.case.id, "model": item.case.model, "mode": item.mode, "reason": item.reason} for item in unscored
    ]


def render_unscored(unscored: Sequence[Unscored], *, format: str, query: Mapping[str, object]) -> str:
    """The list of what was not scored, in a format."""
    columns = (
        Column(field="id", heading="case"),
        Column(field="model", heading="model"),
        Column(field="mode", heading="from"),
        Column(field="reason", heading="why not scored"),
    )
    return render_rows(unscored_rows(unscored), columns=columns, format=format, query=query)


def reason_lines(unscored: Sequence[Unscored], *, most: int | None = None) -> list[str]:
    """A line for each reason, the most frequent first: how many cases, and which; of more than `most`, the first."""
    cases: dict[str, list[str]] = {}
    for item in unscored:
        cases.setdefault(f"{item.mode}: {item.reason}", []).append(item.case.id)
    lines = []
    for reason, ids in sorted(cases.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        shown = ids if most is None or len(ids) <= most else [*ids[:most], f"{len(ids) - most} more"]
        lines.append(f"{len(ids)} x {reason} ({', '.join(shown)})")
    return lines


def is_miss(row: Row) -> bool:
    """Outside what docs/accuracy.md promises for its figure."""
    if row.component == "kv_cache":
        return abs(row.difference) > max(0.05 * abs(row.measured), 0.35)
    limits = {"weights": 0.01, "activation_peak": 0.08, "non_torch": 1.0, "concurrency": 0.08, "tokens": 0.005}
    limit = limits.get(row.component, 0.005)
    return abs(row.error) > limit and not _rounding(row)


def _rounding(row: Row) -> bool:
    """The printed figure's own rounding allows the difference."""
    return row.unit in ("GiB", "x") and abs(row.difference) <= 0.02


def miss_lines(rows: Sequence[Row]) -> list[str]:
    """A line for every miss: case, figure, planned, measured, and the term believed responsible."""
    return [
        f"| {row.case.id} | {row.case.quality} | {row.case.config} | {row.component} | {row.planned:,.2f} |"
        f" {row.measured:,.2f} | {100 * row.error:+.1f}% | {reason_for(row)} |"
        for row in sorted(rows, key=lambda row: (row.component, -abs(row.error)))
        if is_miss(row)
    ]
