"""What a release of llama.cpp does, by its date: "b7400", "2026-05", "v0.5.0", or a fork's.

Most features are known by the month; a release of that month is taken to have them.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

from planner.errors import UsageError

NEWEST: Final = "v0.5.0"
_NAMED: Final = {"v0.5.0": date(2026, 9, 15), "0.5.0": date(2026, 9, 15)}
_BUILD: Final = re.compile(r"b?(\d{3,6})", re.ASCII)
_DATE: Final = re.compile(r"(20\d\d)-(\d\d)(?:-(\d\d))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Release:
    """One release of llama.cpp or of its fork ik_llama.cpp."""

    name: str
    day: date
    fork: bool = False

    def has(self, feature: str) -> bool:
        """Whether it has a feature of the table."""
        row = _features()[feature]
        since, until = row["ik_llama.cpp" if self.fork else "llama.cpp"], row["llama.cpp_until"]
        if not since or self.day < date.fromisoformat(since):
            return False
        return self.fork or not until or self.day < date.fromisoformat(until)


@cache
def _features() -> dict[str, dict[str, str]]:
    return {row["feature"]: row for row in _rows("releases.csv")}


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = files("planner.engines.llama_cpp.tables").joinpath(name).read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def release_of(text: str, *, fork: bool = False) -> Release:
    """The release that a build number, a date or a version names.

    Raises:
        UsageError: none of these.
    """
    word = text.strip().lower()
    if word in _NAMED:
        return Release(text, _NAMED[word], fork)
    dated = _DATE.search(word)
    if dated:
        year, month, day = int(dated[1]), int(dated[2]), int(dated[3] or 15)
        if 1 <= month <= 12 and 1 <= day <= 28:
            return Release(text, date(year, month, day), fork)
    build = _BUILD.fullmatch(word)
    if build:
        return Release(text, _day_of_build(int(build[1])), fork)
    raise UsageError(
        f"--engine-version {text[:40]!r} is no release of llama.cpp; a build number (b7400), a month (2026-05) or"
        f" {NEWEST}",
        field="engine_version",
    )


def _day_of_build(build: int) -> date:
    """By the tags nearest to it: builds are numbered by commits, which come at a steady rate between two tags."""
    known = [(int(row["build"]), date.fromisoformat(row["date"])) for row in _rows("builds.csv")]
    before = max((one for one in known if one[0] <= build), default=known[0])
    after = min((one for one in known if one[0] > build), default=None)
    if after is None or after == before:
        return max(before[1], known[-1][1]) if build >= known[-1][0] else before[1]
    share = (build - before[0]) / (after[0] - before[0])
    return date.fromordinal(before[1].toordinal() + round(share * (after[1] - before[1]).days))
