"""What vLLM prints about memory at start-up: format strings by version, as patterns over one line.

The table (`lines.csv`) has a regular expression for each line, in which `<name>` stands for a number that becomes
the figure `name`, `<#name>` for a count that may have thousands separators, and `<GiB>` for the unit as it is printed.
A pattern is tried only on lines that hold its needle, so that a long log costs little.

Sources: vLLM 0.6.6.post1 to 0.33.0 `worker/worker.py`, `v1/worker/gpu_worker.py`, `v1/core/kv_cache_utils.py`,
`v1/worker/gpu_model_runner.py`, `models/config.py`; older lines (0.4 to 0.6.5) from published logs.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_NUMBER: Final = r"-?\d{1,9}(?:\.\d{1,6})?"
_COUNT: Final = r"\d{1,3}(?:,\d{3}){1,5}|\d{1,15}"


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A line of a log.

    Args:
        kind: what it is.
        error: the line is a refusal or a failure.
        needle: text that every such line holds.
        pattern: its groups are the figures, named as in a measured case ("weights_gib") or as an input ("version").
    """

    kind: str
    error: bool
    needle: str
    pattern: re.Pattern[str]


@cache
def line_patterns() -> tuple[LinePattern, ...]:
    """Every known line."""
    text = files("planner.engines.vllm.log").joinpath("lines.csv").read_text("utf-8")
    return tuple(
        LinePattern(row["kind"], row["error"] == "yes", row["needle"], _compiled(row["pattern"]))
        for row in csv.DictReader(text.splitlines())
    )


def _compiled(text: str) -> re.Pattern[str]:
    text = text.replace("<GiB>", " ?Gi?B")
    text = re.sub(r"(?<!\?P)<#(\w+)>", lambda match: f"(?P<{match[1]}>{_COUNT})", text)
    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", lambda match: f"(?P<{match[1]}>{_NUMBER})", text))
