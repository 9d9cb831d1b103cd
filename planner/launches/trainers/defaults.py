"""The trainers' own defaults by release, from the table."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from planner.launches.record import Value


@cache
def _default_rows() -> tuple[dict[str, str], ...]:
    return tuple(
        csv.DictReader(
            files("planner.launches.tables").joinpath("trainer_defaults.csv").read_text("utf-8").splitlines()
        )
    )


def defaults(framework: str, version: str | None, stated: Mapping[str, Value]) -> dict[str, Any]:
    """The trainer's own defaults for what is not stated, at this release (None: the newest known)."""
    from planner.launches.engines.vllm import release

    found: dict[str, Any] = {}
    for row in _default_rows():
        if row["framework"] != framework or row["input"] in stated or not row["value"]:
            continue
        asked = release(version) if version and version[0].isdecimal() else (999, 0, 0)
        if row["from"] and asked < release(row["from"]):
            continue
        if row["below"] and asked >= release(row["below"]):
            continue
        text = row["value"]
        found[row["input"]] = (
            text == "true"
            if text in ("true", "false")
            else int(text)
            if text.isdecimal()
            else float(text)
            if re.fullmatch(r"\d+\.\d+", text)
            else text
        )
    return found
