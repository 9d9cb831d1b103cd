"""A start-up log of SGLang, TensorRT-LLM, llama.cpp or Ollama beside the plan of the same start.

The engine reads its own log; the arguments that it states, with the card from the caller, are planned again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from planner.contract.engine import Engine, MeasuredStart, find_engine
from planner.contract.parser import parse
from planner.contract.plan import ServingPlan
from planner.engines.llama_cpp import log as llama_log
from planner.engines.llama_cpp.plan import LlamaPlan
from planner.engines.llama_cpp.section import device_names
from planner.engines.sglang import log as sglang_log
from planner.engines.sglang.plan import SglangPlan
from planner.engines.sglang.tables.dates import release_of_day
from planner.engines.tensorrt_llm import log as tensorrt_log
from planner.errors import NotRecognised, PlannerError, SourceError, UsageError
from planner.model.load import load_model
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.engines import sglang, tensorrt_llm
from planner.validation.log import LoggedError, StartLog
from planner.validation.scoring import COMMAND_LINE, Row, Unscored

_LARGEST_LOG: Final = 64 << 20
_ANSI: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_DAY: Final = re.compile(r"20\d\d-\d\d-\d\d")
_READERS: Final[dict[str, Callable[[Iterable[str]], MeasuredStart]]] = {
    "sglang": sglang_log.read_log,
    "tensorrt-llm": tensorrt_log.read_log,
    "llama.cpp": llama_log.read_log,
}
# options of the start that name where things lie, not what they are
_DROPPED: Final = ("--model-path",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStart:
    """A log with the plan of the same start; plan and rows are empty where it could not be planned, with the reason."""

    log: StartLog
    case: Case | None
    plan: ServingPlan | None
    rows: tuple[Row, ...]
    unscored: tuple[Unscored, ...]


def logged_start(
    path: Path, *, model: str | None = None, gpu: str | None = None, gpu_memory: str | None = None
) -> LoggedStart:
    """What a log says, and the plan of the same start.

    Args:
        model: which model it was, where the log does not say one that is known.
        gpu, gpu_memory: the card, which logs do not name.

    Raises:
        SourceError: the file cannot be read.
        NotRecognised: no line of either engine in it.
    """
    lines = _lines(path)
    for name, reader in _READERS.items():
        start = reader(lines)
        if start.measured or start.error:
            if start.version is None and name == "sglang":
                start = replace(start, version=_release_of(lines))
            return _compared(find_engine(name), start, path.name, len(lines), model, gpu, gpu_memory)
    raise NotRecognised(
        "no start-up line of vLLM, SGLang, TensorRT-LLM or llama.cpp in this text; pass the engine's whole log"
    )


def _lines(path: Path) -> list[str]:
    try:
        with path.open("r", encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST_LOG)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from None
    return [_ANSI.sub("", line) for line in text.splitlines()]


def _release_of(lines: Sequence[str]) -> str | None:
    """The release of the day that the log's lines begin with, where no version is printed."""
    day = next((found[0] for line in lines[:200] if (found := _DAY.search(line[:40]))), None)
    return release_of_day(day) if day is not None else None


def _compared(
    engine: Engine,
    start: MeasuredStart,
    name: str,
    lines: int,
    model: str | None,
    gpu: str | None,
    gpu_memory: str | None,
) -> LoggedStart:
    log = StartLog(engine=engine.name, lines=lines)
    log.figures = {figure: {"": value} for figure, value in start.measured.items()}
    log.words = {"version": start.version} if start.version else {}
    log.flags = dict(_pairs(start.words))
    log.errors = [LoggedError("start", start.error, 0)] if start.error else []
    try:
        plan = _plan(engine, start, model or str(log.flags.get("model-path", "")), gpu, gpu_memory)
    except PlannerError as error:
        # what was read is shown in any case; the reason says what to add
        case = Case(id=name, source="start-up log", model=name, config=None, quality="C")
        return LoggedStart(log=log, case=None, plan=None, rows=(), unscored=(Unscored(case, COMMAND_LINE, str(error)),))
    case = Case(
        id=name,
        source="start-up log",
        model=plan.model.id,
        config=plan.model.id,
        quality="A",
        deployment={"engine": engine.name, "engine_version": start.version or "", **_known(plan.deployment)},
        measured=dict(start.measured),
    )
    rows = tuple(_ROWS[engine.name](case, plan))
    return LoggedStart(log=log, case=case, plan=plan, rows=rows, unscored=())


def _pairs(words: Iterable[str]) -> Iterable[tuple[str, object]]:
    option = ""
    for word in words:
        if word.startswith("--"):
            if option:
                yield option, True
            option = word.lstrip("-")
        elif option:
            yield option, word
            option = ""
    if option:
        yield option, True


def _plan(engine: Engine, start: MeasuredStart, model: str, gpu: str | None, gpu_memory: str | None) -> ServingPlan:
    if not model:
        raise UsageError("the log names no model: pass it, validate --log FILE MODEL", field="model")
    words = list(start.words)
    for option in (*_DROPPED, *(("--quantization",) if model.endswith(".gguf") else ())):
        if option in words:
            place = words.index(option)
            del words[place : place + 2]
    card = [*(("--gpu", gpu) if gpu else ()), *(("--gpu-memory", gpu_memory) if gpu_memory else ())]
    version = ["--engine-version", start.version] if start.version else []
    parsed = parse([engine.Deployment], [*card, *version, *words], other=engine.takes)
    return engine.plan(load_model(model), engine.deployment(parsed))


def _known(deployment: Any) -> dict[str, object]:
    """What a measured case says of the command, under its names."""
    found: dict[str, object] = {"tensor_parallel": getattr(deployment, "tp_size", 1)}
    for name in ("mem_fraction_static", "max_running_requests", "max_total_tokens", "context_length"):
        value = getattr(deployment, name, None)
        if value is not None:
            found[name] = value
    fraction = getattr(deployment, "fraction", None)
    if fraction is not None:
        found["kv_cache_free_gpu_memory_fraction"] = fraction
    return found


def _sglang_rows(case: Case, plan: ServingPlan) -> Iterable[Row]:
    assert isinstance(plan, SglangPlan)
    start = sglang.Start(case=case, model=plan.model, deployment=plan.deployment, release_stated=True, unknown=())
    yield from sglang.command_rows(case, start, plan)
    yield from sglang.geometry_rows(case, plan)
    yield from sglang.given_rows(case, start, plan)


def _tensorrt_rows(case: Case, plan: ServingPlan) -> Iterable[Row]:
    yield from tensorrt_llm.pool_rows(case)
    yield from tensorrt_llm.planned_rows(case, plan)


def _llama_rows(case: Case, plan: ServingPlan) -> Iterable[Row]:
    """Every printed buffer beside the planned one; caches of a device together."""
    assert isinstance(plan, LlamaPlan)
    if plan.run is None or plan.buffers is None:
        return
    buffers = plan.buffers
    for index, device in enumerate(device_names(plan.run)):
        planned = {
            "model": buffers.model[index],
            "kv": buffers.full[index] + buffers.window[index],
            "rs": buffers.state[index],
            "compute": buffers.compute[index],
        }
        for kind, size in planned.items():
            measured = case.number(f"{kind}_{device}_bytes")
            if measured:
                name, group = f"{kind} {device}", (plan.model.id,)
                yield Row(
                    case=case,
                    component=name,
                    mode=COMMAND_LINE,
                    planned=size / GIB,
                    measured=measured / GIB,
                    unit="GiB",
                    group=group,
                )


_ROWS: Final[dict[str, Callable[[Case, Any], Iterable[Row]]]] = {
    "sglang": _sglang_rows,
    "tensorrt-llm": _tensorrt_rows,
    "llama.cpp": _llama_rows,
}
