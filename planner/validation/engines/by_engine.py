"""Starts of any engine, each scored by its engine's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from planner.validation import scoring
from planner.validation.cases import Case, bundled_cases, bundled_vllm_cases
from planner.validation.engines import sglang, tensorrt_llm
from planner.validation.scoring import Row, Unscored

Scorer = Callable[[Iterable[Case]], tuple[list[Row], list[Unscored]]]

_SCORERS: Final[Mapping[str, Scorer]] = {
    "vllm": scoring.score,
    "sglang": sglang.score,
    "tensorrt-llm": tensorrt_llm.score,
}
ENGINES: Final = tuple(_SCORERS)


def score(cases: Iterable[Case]) -> tuple[list[Row], list[Unscored]]:
    """Every row that can be made of these cases, and every reason why one cannot; engines may be mixed."""
    grouped: dict[str, list[Case]] = {}
    for case in cases:
        name = str(case.given("engine") or "vllm").replace("_", "-")
        # what no engine here scores is left out by vLLM's reader, which says so
        grouped.setdefault(name if name in _SCORERS else "vllm", []).append(case)
    rows: list[Row] = []
    left: list[Unscored] = []
    for name, mine in grouped.items():
        found, unscored = _SCORERS[name](mine)
        rows += found
        left += unscored
    return rows, left


def bundled(engine: str) -> Sequence[Case]:
    """The starts of one engine that ship with the planner."""
    return bundled_vllm_cases() if engine == "vllm" else bundled_cases(engine.replace("-", "_"))
