"""Why a case is missed: the term believed responsible, by case, from `reasons.csv`."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from planner.validation.scoring import Row


def reason_for(row: Row) -> str:
    """The term believed responsible for a miss; says so when none is recorded."""
    table = _reasons()
    return table.get((row.case.id, row.component)) or table.get((row.case.id, "")) or "not explained yet"


@cache
def _reasons() -> dict[tuple[str, str], str]:
    text = files("planner.validation").joinpath("reasons.csv").read_text("utf-8")
    return {(row["case"], row["figure"]): row["reason"] for row in csv.DictReader(text.splitlines())}
