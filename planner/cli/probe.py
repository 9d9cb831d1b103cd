"""`vram-planner probe`: measure on this machine, and compare with the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from annotated_types import Ge, Gt, Lt

from planner.cli.words.help import print_help
from planner.cli.words.questions import Asking, read
from planner.contract.engine import Engine, find_engine
from planner.contract.inputs import option
from planner.contract.parser import Parsed, parse
from planner.errors import UsageError
from planner.model.load import load_model
from planner.model.shallow.subject import Subject, read_subject
from planner.report.rows import Column, render_rows
from planner.training.generation import Generation, generation_bytes
from planner.training.plain_loop import plain_loop_bytes, plain_loop_recipe
from planner.training.recipe import Recipe
from planner.training.trainer_words import TrainerWords

if TYPE_CHECKING:
    from planner.probe.figures import Measurement

FORMATS: Final = ("table", "json", "csv", "markdown")
_MACHINE: Final = "Machine"
_ANSWER: Final = "Answer"
_ENGINE: Final = "vllm"
_SHORT_RUN: Final = {"max_seq_length": 512, "padding": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """When it passes, and how it is printed."""

    tolerance: Annotated[
        float, Gt(0), Lt(1), option("Largest relative error of the plan that passes.", panel=_ANSWER, common=True)
    ] = 0.05
    format: Annotated[str, option("How to print.", "--format", panel=_ANSWER, choices=FORMATS, common=True)] = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """On what it is measured."""

    device: Annotated[str, option("auto, cuda, cuda:1, rocm or cpu.", panel=_MACHINE, common=True)] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How much of the model is run, and what becomes of the figures."""

    layers: Annotated[
        int | None,
        Ge(1),
        option("Run about this many layers, and extrapolate from two depths.", panel=_MACHINE, common=True),
    ] = None
    record: Annotated[
        str | None,
        option("Append a measured case to this file, for validate --cases.", panel=_ANSWER, common=True),
    ] = None
    dry_run: Annotated[bool, option("Print what would be done, and do nothing.", panel=_MACHINE, common=True)] = False
    force: Annotated[
        bool, option("Run even when the plan does not fit in what is free.", panel=_MACHINE, common=True)
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that runs, by its log or by its metrics."""

    log: Annotated[str | None, option("Its start-up log.", panel=_MACHINE, ours=True, common=True)] = None
    url: Annotated[
        str | None,
        option("Metrics of a vLLM on this machine: http://localhost:8000.", panel=_MACHINE, ours=True, common=True),
    ] = None


def probe(words: Sequence[str]) -> int:
    """Measure on this machine and compare with the plan.

    Exit status: 0 within the tolerance, 1 not, 2 could not run. Needs pip install 'vram-planner[probe]'.

    Examples: vram-planner probe serve Qwen/Qwen2.5-0.5B --input-len 1024; vram-planner probe train Qwen/Qwen2.5-0.5B
    --method lora --lora-target-modules all-linear; vram-planner probe card; vram-planner probe engine Qwen/Qwen3-8B
    --log vllm.log --gpu H100
    """
    if not words or words[0] in ("--help", "-h", "--help-all"):
        commands = {name: about for name, (_, _, about) in _COMMANDS.items()}
        print_help("probe", probe.__doc__ or "", (), everything=True, subject="COMMAND [MODEL]", commands=commands)
        return 0 if words else 2
    name, rest = words[0], words[1:]
    if name not in _COMMANDS:
        raise UsageError(f"probe {name[:30]!r}: expected {', '.join(_COMMANDS)}", field="probe")
    command, records, about = _COMMANDS[name]
    if any(word in ("--help", "-h", "--help-all") for word in rest):
        subject = "" if name == "card" else "MODEL"
        print_help(f"probe {name}", about, records, everything="--help-all" in rest, subject=subject)
        return 0
    return command(rest)  # type: ignore[no-any-return]


def _subject(parsed: Parsed) -> Subject:
    if not parsed.positional:
        raise UsageError("no MODEL: give a bundled name, a folder, a config.json or a Hub id", field="model")
    return read_subject(parsed.positional[0])


def _serve(words: Sequence[str]) -> int:
    parsed = parse((Generation, Machine, Run, Answer), words)
    workload, run, machine = parsed.record(Generation), parsed.record(Run), parsed.record(Machine)
    subject = _subject(parsed)
    if run.dry_run:
        return _describe(subject, "serve", lambda cut: generation_bytes(cut, workload), run, parsed.record(Answer))
    from planner.probe.session import measure_serve

    found = measure_serve(subject, workload, device=machine.device, layers=run.layers, force=run.force)
    return _finish(found, parsed.record(Answer), run.record)


def _train(words: Sequence[str]) -> int:
    from planner.cli.train import read_run

    text, recipe, parsed = read_run(words, (Recipe, TrainerWords, Machine, Run, Answer))
    unsaid: Mapping[str, Any] = {name: value for name, value in _SHORT_RUN.items() if name not in parsed.given}
    recipe = plain_loop_recipe(replace(recipe, **unsaid))
    run, machine, subject = parsed.record(Run), parsed.record(Machine), read_subject(text)
    if run.dry_run:
        planned = lambda cut: plain_loop_bytes(cut, recipe, exact_sizes=False)  # noqa: E731
        return _describe(subject, "train", planned, run, parsed.record(Answer))
    from planner.probe.session import measure_train

    found = measure_train(subject, recipe, device=machine.device, layers=run.layers, force=run.force)
    return _finish(found, parsed.record(Answer), run.record)


def _card(words: Sequence[str]) -> int:
    parsed = parse((Machine, Answer), words, most_positional=0)
    from planner.probe.card import measure_card

    return _finish(measure_card(parsed.record(Machine).device), parsed.record(Answer), None)


def _engine(words: Sequence[str]) -> int:
    engine = find_engine(_ENGINE)
    parsed = read(engine, (engine.Deployment, Asking, Running, Answer), words)
    running, answer = parsed.record(Running), parsed.record(Answer)
    model = parsed.positional[0] if parsed.positional else parsed.record(Asking).model
    if (running.log is None) == (running.url is None):
        raise UsageError("pass either --log FILE or --url http://localhost:8000", field="log")
    if running.log is not None:
        rows, notes = _log_rows(Path(running.log), model, parsed)
    else:
        rows, notes = _url_rows(engine, str(running.url), model, parsed), []
    query: dict[str, object] = {
        "model": model,
        "log": running.log,
        "url": running.url,
        "tolerance": answer.tolerance,
    }
    print(render_rows(rows, columns=_ENGINE_COLUMNS, format=answer.format, query=query))
    if answer.format == "table":
        for note in notes:
            print(f"note: {note}")
    errors = [row["error"] for row in rows]
    if not errors:
        raise UsageError("nothing to compare: the server states no figure that the plan has", field="log")
    return int(any(not isinstance(error, float) or abs(error) > answer.tolerance for error in errors))


def _log_rows(log: Path, model: str | None, stated: Parsed) -> tuple[list[dict[str, object]], list[str]]:
    from planner.validation.logged import logged_start, read_start_log

    found = logged_start(read_start_log(log, engine=_ENGINE), model=model, stated=stated)
    rows: list[dict[str, object]] = [
        {
            "figure": row.component,
            "from": row.mode,
            "unit": row.unit,
            "planned": row.planned,
            "measured": row.measured,
            "error": row.error,
        }
        for row in found.rows
    ]
    return rows, [f"{item.mode}: {item.reason}" for item in found.unscored]


def _url_rows(engine: Engine, url: str, model: str | None, parsed: Parsed) -> list[dict[str, object]]:
    from planner.probe.engine import compare_cache
    from planner.probe.metrics import read_metrics

    if model is None:
        raise UsageError("no MODEL: give a bundled name, a folder, a config.json or a Hub id", field="model")
    _, rows = compare_cache(load_model(model), engine.deployment(parsed), read_metrics(url))
    return rows


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else "-"


def _percent(value: object) -> str:
    return f"{100 * value:+.2f}" if isinstance(value, float) else "-"


_ENGINE_COLUMNS = (
    Column(field="figure", heading="figure"),
    Column(field="from", heading="from"),
    Column(field="unit", heading="unit"),
    Column(field="planned", heading="planned", text=_number, right=True),
    Column(field="measured", heading="measured", text=_number, right=True),
    Column(field="error", heading="%", text=_percent, right=True),
)


def _describe(subject: Subject, what: str, planned: Any, run: Run, answer: Answer) -> int:
    from planner.probe.session import dry_run
    from planner.report.measured.probe import render_dry_run

    print(render_dry_run(dry_run(subject, what, planned, run.layers), format=answer.format))
    return 0


def _finish(found: Measurement, answer: Answer, record_file: str | None) -> int:
    from planner.report.measured.probe import render_measurement

    if record_file is not None:
        from planner.probe.record import append_record, record

        append_record(Path(record_file), record(found))
    print(render_measurement(found, format=answer.format, tolerance=answer.tolerance))
    return 0 if found.within(answer.tolerance) else 1


_COMMANDS: Final[Mapping[str, tuple[Any, tuple[type, ...], str]]] = {
    "serve": (
        _serve,
        (Generation, Machine, Run, Answer),
        "Prefill and decode with random weights and a real cache in transformers, beside the plan of the same.",
    ),
    "train": (
        _train,
        (Recipe, TrainerWords, Machine, Run, Answer),
        "Real training steps with random weights in transformers and PEFT, beside the plan of the same.",
    ),
    "card": (_card, (Machine, Answer), "Total memory and context of the card here, beside the table's."),
    "engine": (
        _engine,
        (find_engine(_ENGINE).Deployment, Running, Answer),
        "What a running vLLM printed or says, beside the plan of the same start. A log states its own flags; with --url"
        " give those of the server.",
    ),
}
