"""Ollama's releases and what they set where the user does not."""

from __future__ import annotations

import csv
import re
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

from planner.errors import UsageError
from planner.units import GIB

NEWEST: Final = "0.24.0"
LLAMA_SERVER: Final = date(2026, 5, 29)
NEW_MEMORY: Final = date(2025, 8, 15)
ONE_SLOT: Final = date(2025, 7, 8)
_VERSION: Final = re.compile(r"v?(\d{1,2})\.(\d{1,3})(?:\.(\d{1,3}|x))?.*", re.ASCII)
_MONTH: Final = re.compile(r"(20\d\d)-(\d\d)(?:-(\d\d))?", re.ASCII)


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = files("planner.engines.ollama.tables").joinpath(name).read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def day_of(text: str) -> date:
    """The day of a release ("0.17.0") or of a month ("2026-02"); a release newer than the table is of the newest's day.

    Raises:
        UsageError: neither.
    """
    month = _MONTH.fullmatch(text.strip())
    if month and 1 <= int(month[2]) <= 12 and 1 <= int(month[3] or 15) <= 28:
        return date(int(month[1]), int(month[2]), int(month[3] or 15))
    version = _VERSION.fullmatch(text.strip())
    if version is None:
        raise UsageError(
            f"--engine-version {text[:40]!r} is no release of Ollama; one such as {NEWEST}, or a month such as 2026-02",
            field="engine_version",
        )
    wanted = tuple(int(part) if part and part.isdigit() else 0 for part in version.groups())
    known = [
        (tuple(map(int, row["version"].split("."))), date.fromisoformat(row["date"])) for row in _rows("releases.csv")
    ]
    return max((one for one in known if one[0] <= wanted), default=known[0])[1]


def default_context(day: date, vram_bytes: int) -> int:
    """num_ctx that nobody set, before it is cut to the model's length."""
    known = [row for row in _rows("contexts.csv") if date.fromisoformat(row["since"]) <= day]
    newest = max(row["since"] for row in known)
    for row in known:
        if row["since"] == newest and (not row["vram_below_gib"] or vram_bytes < int(row["vram_below_gib"]) * GIB):
            return int(row["num_ctx"])
    raise AssertionError("contexts.csv ends each date with a row for every card")


def default_batch(day: date, context: int) -> int:
    """num_batch that nobody set, by the tokens of all slots."""
    if day < LLAMA_SERVER or context <= 4096:
        return 512
    return 1024 if context <= 32768 else 2048
