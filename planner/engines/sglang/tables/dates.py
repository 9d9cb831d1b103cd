"""Days of release of SGLang, for logs that print a day and no version.

Source: the files' dates in the wheels of the package index.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


@cache
def _days() -> tuple[tuple[str, str], ...]:
    text = files("planner.engines.sglang.tables").joinpath("release_dates.csv").read_text("utf-8")
    return tuple((row["date"], row["version"]) for row in csv.DictReader(text.splitlines()))


def release_of_day(day: str) -> str:
    """The newest release of that day (YYYY-MM-DD); the oldest listed for earlier days."""
    return next((version for date, version in reversed(_days()) if date <= day), _days()[0][1])
