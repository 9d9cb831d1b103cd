"""A start-up log of TensorRT-LLM: the memory before the cache, the pool, and what it stopped with.

Source: format strings of kvCacheManager.cpp (0.9 to 1.2) and _torch/pyexecutor/_util.py (0.17 to 1.2), and published
logs; `tables/log_lines.csv`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

from planner.contract.start_log import LoggedError, MeasuredStart

_LONGEST_LINE: Final = 65_536
_MOST_LINES: Final = 2_000_000
_MOST_ERRORS: Final = 50
_VERSION: Final = re.compile(
    r"TensorRT-LLM\]?(?: LLM)? version:? ?(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?(?:\.?(?:rc|post|dev)\d{1,6})?)"
)
_SMALLEST: Final = ("free_at_kv_gib", "kv_tokens", "num_blocks", "kv_budget_gib")


def read_log(lines: Iterable[str]) -> MeasuredStart:
    """What the lines say; figures under the names of measured cases, sizes in GiB as printed."""
    measured: dict[str, float] = {}
    version: str | None = None
    errors: list[LoggedError] = []
    recognised = 0
    for number, raw in enumerate(lines):
        if number >= _MOST_LINES:
            break
        line = raw[:_LONGEST_LINE]
        if version is None and "TensorRT-LLM" in line:
            found = _VERSION.search(line)
            version = found[1] if found else None
        for needle, pattern, is_error in _patterns():
            match = pattern.search(line) if needle in line else None
            if match is None:
                continue
            recognised += 1
            if is_error and len(errors) < _MOST_ERRORS:
                errors.append(LoggedError("start", " ".join(line[match.start() :].split())[:300], number + 1))
            for name, text in match.groupdict().items():
                if text is not None:
                    value = float(text.replace(",", ""))
                    best = min if name in _SMALLEST else max
                    measured[name] = best(measured[name], value) if name in measured else value
    return MeasuredStart(version=version, measured=measured, errors=tuple(errors), recognised=recognised)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], bool], ...]:
    text = files("planner.engines.tensorrt_llm.tables").joinpath("log_lines.csv").read_text("utf-8")
    return tuple(
        (row["needle"], _compiled(row["pattern"]), row["error"] == "yes") for row in csv.DictReader(text.splitlines())
    )


def _compiled(text: str) -> re.Pattern[str]:
    text = re.sub(r">N\)", lambda _: r">-?\d{1,9}(?:\.\d{1,6})?)", text)
    return re.compile(re.sub(r">I\)", lambda _: r">\d[\d,]{0,15})", text))
