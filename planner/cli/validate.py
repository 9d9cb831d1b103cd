"""`vram-planner validate`: score the planner against measured cases, or a start-up log of yours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from planner.cli.words.help import print_help
from planner.cli.words.questions import Asking, read
from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import inputs_of, option
from planner.contract.lever import Effect
from planner.contract.parser import Parsed, dashed, parse
from planner.contract.words.export_name import read_export
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.report.measured.accuracy import serving_page
from planner.report.measured.start_log import render_log
from planner.report.measured.validation import render_each, render_summary, render_unscored
from planner.validation.cases import load_cases
from planner.validation.engines.by_engine import ENGINES, bundled, score
from planner.validation.logged import LoggedStart, logged_start, read_start_log
from planner.validation.scoring import once_per_start

FORMATS = ("table", "json", "csv", "markdown")
_CASES = "Measured cases"
_LOG = "A log of yours"
_ANSWER = "Answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is scored, and how it is printed."""

    log: Annotated[
        str | None,
        option("A start-up log: plan the same start beside it.", "--log", panel=_LOG, ours=True, common=True),
    ] = None
    launch: Annotated[
        str | None,
        option(
            "What launched it: a command in quotes, a file; read for what the log leaves out.",
            "--launch",
            panel=_LOG,
            ours=True,
            common=True,
        ),
    ] = None
    cases: Annotated[
        str | None,
        option(
            "Measured cases, one JSON object a line (see docs/json.md).",
            "--cases",
            panel=_CASES,
            ours=True,
            common=True,
        ),
    ] = None
    by: Annotated[
        str,
        option(
            "Split the errors by this.",
            "--by",
            panel=_CASES,
            choices=("component", "model", "version", "gpu"),
            ours=True,
            common=True,
        ),
    ] = "component"
    once: Annotated[bool, option("Count each distinct start once.", "--once", panel=_CASES, ours=True, common=True)] = (
        False
    )
    unscored: Annotated[
        bool,
        option(
            "List the cases that were not scored instead, and why.",
            "--unscored",
            panel=_CASES,
            ours=True,
            common=True,
        ),
    ] = False
    each: Annotated[
        bool,
        option(
            "List every case with planned, measured and error (also --format csv).",
            "--each",
            panel=_CASES,
            ours=True,
            common=True,
        ),
    ] = False
    accuracy_page: Annotated[
        bool, option("Print the accuracy page in Markdown.", "--accuracy-page", panel=_ANSWER, ours=True, common=True)
    ] = False
    format: Annotated[
        str, option("How to print.", "--format", panel=_ANSWER, choices=FORMATS, ours=True, common=True)
    ] = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfEngine:
    """Whose bundled starts, or whose log."""

    engine: Annotated[
        str | None,
        option(
            f"The bundled starts of this engine ({', '.join(ENGINES)}); with --log, whose log it is.",
            "--engine",
            panel=_CASES,
            ours=True,
            common=True,
        ),
    ] = None


def validate(words: Sequence[str]) -> int:
    """Score the planner against measured starts: errors by figure, and why cases were left out.

    The bundled starts of vLLM, or of --engine; cases of a file may be of any of these engines.

    With --log the flags, memory lines and errors of a start-up log are read, the same start is planned, and planned
    and measured stand side by side. Every option of serve may stand beside it for what the log does not say (logs
    seldom name their card: --gpu), and --launch takes the command or manifest that started it. --format json also
    prints the start, under `case`, as a case for --cases.

    Examples: vram-planner validate; vram-planner validate --by version; vram-planner validate --cases mine.jsonl;
    vram-planner validate --log serve.log meta-llama/Llama-3.1-8B-Instruct --gpu H100; vram-planner validate --log
    serve.log --launch docker-compose.yml
    """
    if any(word in ("--help", "-h", "--help-all") for word in words):
        everything = "--help-all" in words
        engine = find_engine(_stated(words, "--engine") or "vllm")
        records: tuple[type, ...] = (Asked, OfEngine, *((engine.Deployment, Workload) if everything else ()))
        print_help("validate", validate.__doc__ or "", records, everything=everything, subject="[MODEL]")
        return 0
    if _stated(words, "--log") is not None:
        print(_compare_log(words))
        return 0
    asked = _without_log(words)
    engine_name = asked.record(OfEngine).engine
    own = asked.record(Asked)
    if engine_name is not None and engine_name not in ENGINES:
        raise UsageError(f"--engine {engine_name[:30]!r}: starts of {', '.join(ENGINES)} are bundled", field="engine")
    if engine_name is not None and own.cases is not None:
        raise UsageError("--engine is of the bundled starts; those of --cases say their engine", field="engine")
    print(_scored(own, engine_name), end="" if own.accuracy_page else "\n")
    return 0


def _scored(asked: Asked, engine: str | None) -> str:
    measured = load_cases(Path(asked.cases)) if asked.cases is not None else bundled(engine or ENGINES[0])
    rows, left = score(measured)
    if asked.once:
        rows = once_per_start(rows)
    if asked.accuracy_page:
        return serving_page(measured, rows, left)
    query: dict[str, object] = {"cases": asked.cases or "bundled", "by": asked.by, "once": asked.once}
    if asked.cases is None:
        query["engine"] = engine or ENGINES[0]
    if asked.each:
        return render_each(rows, left, format=asked.format, query=query)
    if asked.unscored:
        return render_unscored(left, format=asked.format, query=query)
    return render_summary(rows, left, by=asked.by, format=asked.format, query=query)


def _compare_log(words: Sequence[str]) -> str:
    path, source = str(_stated(words, "--log")), _stated(words, "--launch")
    launched = parsed = None
    log = read_start_log(Path(path), engine=_stated(words, "--engine"))
    engine = log.engine
    if source is not None:
        from planner.cli.words.launched import launched_by  # readers of every form; only for this

        launched = launched_by(source, engine=engine.name)
        parsed = read(engine, (engine.Deployment, Workload, Asking), launched.words)
    stated = read(engine, (engine.Deployment, Workload, Asking, Asked), words)
    asked = stated.record(Asked)
    asking = stated.record(Asking)
    given = [one.spelling for one in inputs_of(Asked) if one.option.panel == _CASES and one.name in stated.given]
    if given:
        raise UsageError(f"{given[0]} is of measured cases; --log FILE is one start", field="log")
    text = stated.positional[0] if stated.positional else asking.model
    model, export = read_export(text) if text is not None else (None, {})
    if export:
        stated = Parsed(positional=(), given={**export, **stated.given}, typed=stated.typed, passed=stated.passed)
    found = logged_start(
        log,
        model=model or (log.model is None and launched and launched.model) or None,
        stated=stated,
        launched=parsed,
        workload=stated.record(Workload),
    )
    return render_log(found, format=asked.format, effects=_effects(found))


def _effects(found: LoggedStart) -> tuple[Effect, ...]:
    """What each lever alone would give back of the planned card; none where the card is not known."""
    if found.plan is None or not found.card_known:
        return ()
    from planner.api import advise  # only with a plan: levers of the engine

    return advise(found.plan).levers


def _stated(words: Sequence[str], name: str) -> str | None:
    """The value of an option before the declarations that read it are known."""
    for index, word in enumerate(words):
        spelled, equals, value = dashed(word).partition("=")
        if spelled == name:
            return value if equals else words[index + 1] if index + 1 < len(words) else ""
    return None


def _without_log(words: Sequence[str]) -> Parsed:
    """The words by the command's own declaration.

    Raises:
        UsageError: an input of serve, which belongs to --log; or as `parse`.
    """
    try:
        parsed = parse((Asked, OfEngine), words)
    except UsageError:
        known = {dashed(text) for one in (*inputs_of(Asked), *inputs_of(OfEngine)) for text in one.spellings}
        inputs = {
            dashed(text)
            for name in engine_names()
            for one in inputs_of(find_engine(name).Deployment)
            for text in one.spellings
        }
        for word in words:
            name = dashed(word.partition("=")[0])
            if name.startswith("-") and name not in known and name in inputs:
                raise UsageError(f"{name} belongs to --log FILE", field="log") from None
        raise
    if parsed.positional or "launch" in parsed.given:
        what = "MODEL" if parsed.positional else "--launch"
        raise UsageError(f"{what} belongs to --log FILE", field="log")
    return parsed
