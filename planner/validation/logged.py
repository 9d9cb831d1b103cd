"""A start-up log beside the plan of the same start.

Every engine that knows its own log is asked; the one that recognises most lines has written it. What the log states is
planned again, with what the caller adds; what the caller states beats the log, and the log beats what launched it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from planner.contract.engine import Engine, engine_names, find_engine
from planner.contract.inputs import inputs_of, plain
from planner.contract.parser import Parsed, parse
from planner.contract.plan import ServingPlan
from planner.contract.start_log import COMMAND_LINE, MeasuredStart, ReadsLogs
from planner.contract.workload import ONE_REQUEST, Workload
from planner.errors import NotRecognised, PlannerError, SourceError, UsageError
from planner.model.load import load_model
from planner.units import GIB
from planner.validation.case_types import DEPLOYMENT
from planner.validation.cases import Case
from planner.validation.scoring import Row, Unscored, rows_of

_CHUNK_BYTES: Final = 1 << 16
_LARGEST_LOG: Final = 256 << 20
_LONGEST_LINE: Final = 1 << 16
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
# A card that nobody states has the batch defaults of small cards; nothing that depends on its size is compared
_ANY_CARD_BYTES: Final = 48 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """A log, whose it is, and what it says."""

    name: str
    engine: Engine
    lines: int
    start: MeasuredStart

    @property
    def model(self) -> str | None:
        """The model that it names."""
        found = self.start.stated.get("model")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStart:
    """A log with the plan of the same start; plan and rows are empty where it could not be planned, with the reason.

    Args:
        card_known: the card's memory was stated or printed.
    """

    log: StartLog
    case: Case | None
    plan: ServingPlan | None
    rows: tuple[Row, ...]
    unscored: tuple[Unscored, ...]
    card_known: bool = True


def read_start_log(path: Path, *, engine: str | None = None) -> StartLog:
    """What a log says.

    Args:
        engine: whose it is; None: of the engine that recognises most of its lines.

    Raises:
        SourceError: the file cannot be read.
        NotRecognised: no engine knows a line of it.
        UsageError: an engine that is not known, or that does not read logs.
    """
    lines = list(lines_of(path))
    if engine is not None:
        asked = find_engine(engine)
        if not isinstance(asked, ReadsLogs):
            raise UsageError(f"--engine {asked.name}: its logs are not read here", field="engine")
    best: StartLog | None = None
    readers = [one for name in engine_names() if isinstance(one := find_engine(name), ReadsLogs)]
    for reader in readers:
        if engine is not None and reader is not asked:
            continue
        start = reader.read_log(lines)
        if best is None or start.recognised > best.start.recognised:
            best = StartLog(name=path.name, engine=reader, lines=len(lines), start=start)
    if best is None or not best.start.recognised:
        titles = ", ".join(one.title for one in readers)
        raise NotRecognised(f"no start-up line of {titles} in this text; pass the engine's whole log")
    return best


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a log without colours, each of at most 65,536 characters, of the first 256 MiB.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(2)
            file.seek(0)
            encoding = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}.get(start, "utf-8")
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            chunks = (file.read(_CHUNK_BYTES) for _ in range(_LARGEST_LOG // _CHUNK_BYTES))
            for line in _split(decoder.decode(chunk) for chunk in iter(lambda: next(chunks, b""), b"")):
                yield _ANSI.sub("", line) if "\x1b" in line else line
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from None


def _split(chunks: Iterable[str]) -> Iterator[str]:
    """Lines of at most _LONGEST_LINE characters; what a longer one has beyond that is dropped."""
    held, dropping = "", False
    for chunk in chunks:
        pieces = re.split(r"\r\n|\n|\r", chunk)
        for piece in pieces[:-1]:
            if not dropping:
                yield (held + piece)[:_LONGEST_LINE]
            held, dropping = "", False
        if not dropping:
            held += pieces[-1]
            if len(held) > _LONGEST_LINE:
                yield held[:_LONGEST_LINE]
                held, dropping = "", True
    if held and not dropping:
        yield held


def logged_start(
    log: StartLog,
    *,
    model: str | None = None,
    stated: Parsed | None = None,
    launched: Parsed | None = None,
    workload: Workload = ONE_REQUEST,
) -> LoggedStart:
    """What a log says, and the plan of the same start.

    Args:
        model: which model it was, where the log does not say one that is known.
        stated: what the caller adds or knows better, by the engine's declaration.
        launched: what launched it says, where the log does not.

    Raises:
        UsageError: no model is named anywhere.
    """
    name = model or log.model
    if not name:
        raise UsageError("the log names no model: pass it, validate --log FILE MODEL", field="model")
    own: Mapping[str, Any] = stated.given if stated else {}
    try:
        parsed = _together(log, name, own, stated, launched)
        unknown = _unknown(parsed.given)
        if "total memory" in unknown:
            parsed = replace(parsed, given={**parsed.given, "gpu_memory_bytes": _ANY_CARD_BYTES})
        deployment = log.engine.deployment(parsed)
        plan = log.engine.plan(load_model(name), deployment, workload)
    except PlannerError as error:
        # what was read is shown in any case; the reason says what to add
        case = Case(id=log.name, source="start-up log", model=name, config=None, quality="C")
        left = Unscored(case, COMMAND_LINE, str(error))
        return LoggedStart(log=log, case=None, plan=None, rows=(), unscored=(left,))
    case = _case(log, name, parsed.given, own, plan)
    assert isinstance(log.engine, ReadsLogs)
    compared, reasons = log.engine.beside(plan, log.start.measured, unknown)
    ways = str(getattr(deployment, log.engine.axes.ways or "", 1))
    return LoggedStart(
        log=log,
        case=case,
        plan=plan,
        rows=tuple(rows_of(case, compared, (name, "", "", ways, "1", plan.engine_version))),
        unscored=tuple(Unscored(case, mode, reason) for mode, reason in reasons),
        card_known="total memory" not in unknown,
    )


def _unknown(given: Mapping[str, Any]) -> tuple[str, ...]:
    """What a plan stands on and nobody stated."""
    card = "gpu" in given or "gpu_memory_bytes" in given or "gpus" in given
    missing = {"engine version": "engine_version" in given, "total memory": card}
    return tuple(name for name, known in missing.items() if not known)


def _together(
    log: StartLog, model: str, own: Mapping[str, Any], stated: Parsed | None, launched: Parsed | None
) -> Parsed:
    """The caller's inputs, below them the log's, below them those of what launched it."""
    engine, start = log.engine, log.start
    said = parse([engine.Deployment], start.words, other=engine.takes)
    given = dict(said.given)
    if model.lower().endswith(".gguf"):
        given.pop(engine.axes.quantization, None)  # the file says how its weights are stored
    if start.version is not None:
        given["engine_version"] = start.version
    if "gpus" in own or (launched is not None and "gpus" in launched.given):
        given.pop("gpu_memory_bytes", None)
    below = launched.given if launched is not None else {}
    return Parsed(
        positional=(),
        given={**below, **given, **own},
        typed={**(launched.typed if launched else {}), **said.typed, **(stated.typed if stated else {})},
        passed=tuple(dict.fromkeys(word for one in (launched, said, stated) if one is not None for word in one.passed)),
    )


def _case(log: StartLog, model: str, given: Mapping[str, Any], own: Mapping[str, Any], plan: ServingPlan) -> Case:
    """The start as a measured case, as `--cases` reads it."""
    deployment: dict[str, object] = {**log.start.stated, "engine": log.engine.name}
    deployment.pop("model", None)
    deployment.setdefault("engine_version", plan.engine_version if "engine_version" in given else "")
    deployment.setdefault("tensor_parallel", getattr(plan.deployment, log.engine.axes.ways or "", 1))
    if "engine_version" in own:
        deployment["engine_version"] = own["engine_version"]
    if own.get("gpu") is not None:
        deployment["gpu"] = str(own["gpu"])
    if own.get("gpu_memory_bytes"):
        deployment["gpu_memory_gib"] = own["gpu_memory_bytes"] / GIB
    names = {one.name for one in inputs_of(log.engine.Deployment)} - {"gpu", "gpu_memory_bytes", "engine_version"}
    for name in names & set(own):
        deployment[name] = plain(own[name])
    return Case(
        id=log.name,
        source="start-up log",
        model=log.model or model,
        config=model,
        quality="A",
        deployment=_typed(deployment),
        measured=dict(log.start.measured),
    )


def _typed(deployment: Mapping[str, object]) -> dict[str, object]:
    """The deployment without values that a case may not have, such as a 0 printed for "not set"."""
    return {name: value for name, value in deployment.items() if name not in DEPLOYMENT or DEPLOYMENT[name][1](value)}
