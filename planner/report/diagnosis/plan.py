"""A plan beside a finding, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.diagnosis.expectation.beside_plan import Expectation
from planner.diagnosis.expectation.comparison import Comparison
from planner.report.diagnosis.lines import wrapped
from planner.report.levers import levers_json
from planner.units import format_size

_VERDICTS = {"fits": "fits", "tight": "is tight"}


def expectation_json(plan: Expectation) -> dict[str, Any]:
    """The contract's `plan` of a finding: the figures, the verdict, and the plan's levers."""
    return {**plan.to_json(), **levers_json(plan.advice)}


def expectation_heading(plan: Expectation) -> str:
    """The plan in a line: whether it fits, and which moment is compared."""
    needed, card = format_size(plan.needed_bytes), format_size(plan.card_bytes)
    words = _VERDICTS.get(plan.verdict, "does not fit")
    return f"The plan ({plan.kind}) {words}, {needed} of {card}; compared at: {plan.point}"


def expectation_lines(plan: Expectation) -> Iterator[str]:
    """Planned and in the text, one figure a line, with what is compared under it."""
    yield f"{'Figure':<34}{'Planned':>14}{'In the text':>14}{'Difference':>16}"
    for row in plan.rows:
        planned, observed, difference = compared(row)
        yield f"{row.name:<34}{planned:>14}{observed:>14}{difference:>16}"
        yield from wrapped(row.what, first="    ", rest="    ")


def compared(row: Comparison) -> tuple[str, str, str]:
    """(planned, in the text, difference), with "*" where it is outside the plan's band."""
    mark = " *" if row.beyond else ""
    observed = "-" if row.observed is None else _value(row.observed, row.unit)
    difference = "-" if row.difference is None else _signed(row.difference, row.unit) + mark
    return _value(row.planned, row.unit), observed, difference


def _value(value: int | float, unit: str) -> str:
    if unit == "bytes":
        return format_size(int(value))
    return f"{value:g}" if unit == "fraction" else f"{int(value):,}"


def _signed(value: int | float, unit: str) -> str:
    return ("+" if value > 0 else "") + _value(value, unit)
