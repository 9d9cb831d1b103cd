"""A plan beside a finding, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.diagnosis.expectation.beside_plan import Expectation
from planner.diagnosis.expectation.comparison import Comparison
from planner.report.levers import levers_json
from planner.report.rows import Column, Format, render_rows
from planner.units import format_size

_COLUMNS = (
    Column(field="figure", heading="Figure", right=False),
    Column(field="planned", heading="Planned", right=True),
    Column(field="observed", heading="In the text", right=True),
    Column(field="difference", heading="Difference", right=True),
    Column(field="what", heading="What is compared", right=False),
)
_VERDICTS = {"fits": "fits", "tight": "is tight", "does_not_fit": "does not fit"}


def expectation_json(plan: Expectation) -> dict[str, Any]:
    """The contract's `plan` of a finding: the figures, the verdict, and the plan's levers."""
    return {**plan.to_json(), **levers_json(plan.advice)}


def expectation_heading(plan: Expectation) -> str:
    """The plan in a line: whether it fits, and which moment is compared."""
    needed, card = format_size(plan.needed_bytes), format_size(plan.card_bytes)
    return f"The plan ({plan.kind}) {_VERDICTS[plan.verdict]}, {needed} of {card}; compared at: {plan.point}"


def expectation_table(plan: Expectation, format: Format) -> str:
    """Planned and observed, one figure a row."""
    return render_rows([dict(_row(row)) for row in plan.rows], columns=_COLUMNS, format=format, query={})


def _row(row: Comparison) -> Iterator[tuple[str, object]]:
    mark = " *" if row.beyond else ""
    yield "figure", row.name
    yield "planned", _value(row.planned, row.unit)
    yield "observed", "-" if row.observed is None else _value(row.observed, row.unit)
    yield "difference", "-" if row.difference is None else _signed(row.difference, row.unit) + mark
    yield "what", row.what


def _value(value: int | float, unit: str) -> str:
    if unit == "bytes":
        return format_size(int(value))
    return f"{value:g}" if unit == "fraction" else f"{int(value):,}"


def _signed(value: int | float, unit: str) -> str:
    return ("+" if value > 0 else "") + _value(value, unit)
