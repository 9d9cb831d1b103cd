"""What SGLang does in which release: rules as rows with a first and a last version, open at the newest end.

Read in the wheels of the releases named in each row's source (0.3.6 to 0.5.23); a release between two that were read
follows the earlier row until the version stated.
"""

from __future__ import annotations

import csv
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from planner.errors import UsageError

Release = tuple[int, ...]

OLDEST: Final = "0.3.6"
NEWEST: Final = "0.5.23"
_VERSION: Final = re.compile(
    r"v?(\d{1,3}(?:\.\d{1,4}){1,2})(?:\.?post(\d{1,3}))?(?:(?:rc|a|b)\d{1,3}|[.-]?dev[\w.+]{0,40}|\+[\w.]{1,40})?"
)


@lru_cache(maxsize=256)
def parse_release(text: str) -> Release:
    """(0, 4, 9, 2) of "0.4.9.post2"; what follows a "dev" or "+" does not count.

    Raises:
        UsageError: no version, or one older than the rules go back to.
    """
    match = _VERSION.fullmatch(text.strip()) if len(text) <= 80 else None
    if match is None:
        raise UsageError(
            f"--engine-version: {text[:40]!r} is no release of SGLang; write one like {NEWEST}", field="engine_version"
        )
    numbers = [int(part) for part in match[1].split(".")]
    numbers += [0] * (3 - len(numbers))
    release = (*numbers, int(match[2] or 0))
    if release < release_key(OLDEST):
        raise UsageError(f"--engine-version {text}: SGLang is known from {OLDEST} on", field="engine_version")
    return release


def release_key(text: str) -> Release:
    """(0, 4, 6, 5) of a table's "0.4.6.5", the fifth post release; (0, 5, 9, 0) of "0.5.9"."""
    numbers = [int(part) for part in text.split(".")]
    return (*numbers, *([0] * (4 - len(numbers))))


def covers(row: dict[str, str], release: Release) -> bool:
    """Whether a row with a first and a last version (empty: open) holds in a release."""
    first, last = row["first_version"], row["last_version"]
    # a last version without a post counter covers its post releases
    return (not first or release_key(first) <= release) and (
        not last or release[: len(last.split("."))] <= _plain(last)
    )


def _plain(text: str) -> Release:
    return tuple(int(part) for part in text.split("."))


@cache
def table_rows(name: str) -> tuple[dict[str, str], ...]:
    text = files("planner.engines.sglang.tables").joinpath(name).read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def rows_at(name: str, release: Release) -> tuple[dict[str, str], ...]:
    """The rows of a table that hold in a release, in their order."""
    return tuple(row for row in table_rows(name) if covers(row, release))


@cache
def rules_at(release: Release) -> dict[str, str]:
    """Every rule that holds in a release, by name."""
    return {row["rule"]: row["value"] for row in rows_at("rules.csv", release)}


@cache
def has_trait(trait: str, architecture: str, release: Release) -> bool:
    """The engine's list for this trait names the architecture in that release."""
    return any(
        row["trait"] == trait and row["architecture"] == architecture for row in rows_at("architectures.csv", release)
    )
