"""Published speeds beside the planned band: every row of cases/throughput.jsonl.

A row is one JSON object a line: id, model, gpu, quantization, tensor_parallel_size (absent: 1), sequences at once,
input and output tokens, context (absent: input and half the output), kv_cache_dtype, max_model_len, max_num_seqs,
engine as the source names it, metric, measured, source, date, group; calibrates: a constant of `efficiency.csv` was
read off its configuration.

    tpot_ms                  milliseconds between two tokens of a request
    decode_tps_per_request   tokens a second of one request while it decodes
    output_tps               output tokens a second of all requests, prompts read between
    total_tps_one            (prompt + output) tokens over the time of one request
    prefill_tps              prompt tokens a second of one prompt
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from statistics import median
from typing import Any, Final

from planner.contract.component import SIDES
from planner.contract.engine import find_engine
from planner.errors import PlannerError, SourceError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.serving.throughput import Seconds, decode_step, prefill, requests_per_second

# how sources spell an engine, its name here, and its inputs for ways
_ENGINES: Final = {
    "sglang": ("sglang", "tp_size"),
    "tensorrt-llm": ("tensorrt-llm", "tp_size"),
    "llama.cpp": ("llama.cpp", None),
    "vllm": ("vllm", "tensor_parallel_size"),
}
_SHORTEST_LENGTH: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """One published speed with the planned band, in the metric's unit; `reason` says why there is none."""

    case: Mapping[str, Any]
    low: float = 0.0
    best: float = 0.0
    high: float = 0.0
    bound: str = ""
    reason: str = ""

    @property
    def measured(self) -> float:
        """What was published."""
        return float(self.case["measured"])

    @property
    def cards(self) -> int:
        """Cards that share every matrix."""
        return int(self.case.get("tensor_parallel_size") or 1)

    @property
    def inside(self) -> bool:
        """The published figure lies in the band."""
        return not self.reason and min(self.low, self.high) <= self.measured <= max(self.low, self.high)

    @property
    def ratio(self) -> float:
        """Best estimate over the published figure, a time turned into a speed."""
        found = self.best / self.measured
        return 1 / found if self.case["metric"] == "tpot_ms" else found

    @property
    def width(self) -> float:
        """The band's fast side over its slow one."""
        return max(self.low, self.high) / min(self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedScore:
    """Rows together: how many, how many inside, medians of ratio and width over those with a band."""

    rows: int
    inside: int
    ratio: float
    width: float


def speed_cases() -> tuple[Mapping[str, Any], ...]:
    """The bundled rows."""
    text = files("planner.validation").joinpath("cases/throughput.jsonl").read_text("utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


def score_speeds(cases: Iterable[Mapping[str, Any]]) -> tuple[SpeedRow, ...]:
    """Every case with its band."""
    return tuple(_row(case) for case in cases)


def score_of(rows: Iterable[SpeedRow]) -> SpeedScore:
    """The figures of these rows; a row without a band is outside."""
    found = list(rows)
    planned = [row for row in found if not row.reason]
    return SpeedScore(
        rows=len(found),
        inside=sum(row.inside for row in found),
        ratio=median(row.ratio for row in planned),
        width=median(row.width for row in planned),
    )


def _row(case: Mapping[str, Any]) -> SpeedRow:
    try:
        found = _figure(_plan(case), case)
    except PlannerError as error:
        return SpeedRow(case=case, reason=str(error))
    return SpeedRow(case=case, low=found.low, best=found.best, high=found.high, bound=found.bound)


def _plan(case: Mapping[str, Any]) -> Any:
    words = str(case["engine"]).lower()
    named = next((entry for start, entry in _ENGINES.items() if words.startswith(start)), None)
    if named is None:
        raise SourceError(f"{case['id']}: engine {case['engine']!r} is not planned here")
    engine, ways = find_engine(named[0]), named[1]
    axes, model = engine.axes, load_model(str(case["model"]))
    asked = int(case["input"]) + int(case["output"])
    length = case.get("max_model_len") or min(model.longest_request, max(_SHORTEST_LENGTH, asked))
    changes = dict(axes.on_cards) | {"gpu": find_gpu(str(case["gpu"])), axes.length: length}
    if ways is not None:
        changes[ways] = int(case.get("tensor_parallel_size") or 1)
    if case.get("quantization"):
        changes[axes.quantization] = case["quantization"]
    if case.get("kv_cache_dtype"):
        changes[axes.cache] = case["kv_cache_dtype"]
    if "--enforce-eager" in words:
        changes["enforce_eager"] = True
    return engine.plan(model, engine.Deployment(**changes))


def _figure(plan: Any, case: Mapping[str, Any]) -> Seconds:
    sequences, read, written = (int(case[name]) for name in ("sequences", "input", "output"))
    context = int(case.get("context") or read + written // 2)
    metric = case["metric"]
    if metric == "tpot_ms":
        return _scaled(decode_step(plan, sequences=sequences, context=context), lambda value: value * 1e3)
    if metric == "decode_tps_per_request":
        return _scaled(decode_step(plan, sequences=sequences, context=context), lambda value: 1 / value)
    if metric == "prefill_tps":
        return _scaled(prefill(plan, tokens=read), lambda value: read / value)
    if metric not in ("output_tps", "total_tps_one"):
        raise SourceError(f"{case['id']}: metric {metric!r} is not known")
    rate = requests_per_second(plan, sequences=sequences, input_tokens=read, output_tokens=written)
    tokens = written if metric == "output_tps" else read + written
    return _scaled(rate, lambda value: value * tokens)


def _scaled(found: Seconds, change: Any) -> Seconds:
    return Seconds(bound=found.bound, **{side: change(found.at(side)) for side in SIDES})
