"""What TensorRT-LLM does in which release; rows stay open at the newest end.

Source: C++ and Python files of about 0.15, 0.17, 0.18, 0.20, 1.0 and 1.2, named in each row.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Final

from planner.errors import UsageError
from planner.units import MIB

Release = tuple[int, ...]

OLDEST: Final = "0.5"
NEWEST: Final = "1.2"
_SUFFIX: Final = r"(?:(?:\.?(?:post|dev|rc)|a|b)\d{1,6}){0,3}(?:\+[\w.]{1,40})?"
_VERSION: Final = re.compile(r"v?(\d{1,3}\.\d{1,3})(?:\.\d{1,4})?" + _SUFFIX)


def parse_release(text: str) -> Release:
    """(1, 2) of "1.2.0rc3".

    Raises:
        UsageError: no version, or one older than the rules go back to.
    """
    match = _VERSION.fullmatch(text.strip()) if len(text) <= 80 else None
    if match is None:
        raise UsageError(
            f"--engine-version: {text[:40]!r} is no release of TensorRT-LLM; write one like {NEWEST}",
            field="engine_version",
        )
    release = _key(match[1])
    if release < _key(OLDEST):
        raise UsageError(f"--engine-version {text}: TensorRT-LLM is known from {OLDEST} on", field="engine_version")
    return release


def _key(text: str) -> Release:
    return tuple(int(part) for part in text.split("."))


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = files("planner.engines.tensorrt_llm.tables").joinpath(name).read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def rules_at(release: Release) -> dict[str, str]:
    """Every rule that holds in a release, by name."""
    return {
        row["rule"]: row["value"]
        for row in _rows("rules.csv")
        if _key(row["first_version"]) <= release and (not row["last_version"] or release <= _key(row["last_version"]))
    }


def measured_bytes(table: str, **key: str) -> tuple[int, int, int, str]:
    """(low, best, high, source) of the row with these cells."""
    row = next(row for row in _rows(table) if all(row[name] in (cell, "any") for name, cell in key.items()))
    low, best, high = (int(row[f"{side}_mib"]) * MIB for side in ("low", "best", "high"))
    return low, best, high, row["source"]


@cache
def flags() -> dict[str, dict[str, str]]:
    """Options that are no input of a plan, with what they take and whether memory depends on them."""
    return {row["flag"]: row for row in _rows("flags.csv")}
