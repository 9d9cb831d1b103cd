"""`vram-planner validate`: score the planner against measured cases, or a start-up log of yours."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.words.deployment_options import GpuMemoryOption, GpuOption
from planner.errors import NotRecognised, UsageError
from planner.model.load import load_model
from planner.report.measured.accuracy import serving_page
from planner.report.measured.start_log import render_log
from planner.report.measured.validation import render_each, render_summary, render_unscored
from planner.report.rows import Format
from planner.units import GIB, parse_size
from planner.validation.cases import load_cases
from planner.validation.engines.by_engine import ENGINES, bundled, score
from planner.validation.log import read_log
from planner.validation.scoring import once_per_start, score_start
from planner.validation.starts import read_start


class By(str, Enum):
    """What the summary is split by."""

    COMPONENT = "component"
    MODEL = "model"
    VERSION = "version"
    GPU = "gpu"


def validate(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="With --log: the model that was started, if it says none.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option("--log", help="A start-up log of vLLM: plan the same start beside it.")
    ] = None,
    gpu: GpuOption = None,
    gpu_memory: GpuMemoryOption = None,
    cases: Annotated[
        Path | None, typer.Option("--cases", help="Measured cases, one JSON object a line (see docs/json.md).")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help=f"The bundled starts of this engine: {', '.join(ENGINES)}.")
    ] = None,
    by: Annotated[By, typer.Option("--by", help="Split the errors by this.")] = By.COMPONENT,
    once: Annotated[bool, typer.Option("--once", help="Count each distinct start once.")] = False,
    unscored: Annotated[
        bool, typer.Option("--unscored", help="List the cases that were not scored instead, and why.")
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="List every case with planned, measured and error (also --format csv).")
    ] = False,
    page: Annotated[bool, typer.Option("--accuracy-page", help="Print the accuracy page in Markdown.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Score the planner against measured starts: errors by figure, and why cases were left out.

    The bundled starts of vLLM, or of --engine; cases of a file may be of any of these engines.

    With --log, vLLM's flags, memory lines and errors are read from a start-up log, the same start is planned, and
    planned and measured stand side by side; --format json also prints the start, under `case`, as a case for --cases
    (name its card with --gpu: logs seldom do). Logs of SGLang and TensorRT-LLM are read the same way.

    Examples: vram-planner validate; vram-planner validate --by version; vram-planner validate --cases mine.jsonl;
    vram-planner validate --log serve.log meta-llama/Llama-3.1-8B-Instruct --gpu H100
    """
    if log is not None:
        typer.echo(_compare_log(log, model, gpu, gpu_memory, format.value))
        return
    if model is not None or gpu is not None or gpu_memory is not None:
        raise UsageError("MODEL, --gpu and --gpu-memory belong to --log FILE", field="log")
    if engine is not None and engine not in ENGINES:
        raise UsageError(f"--engine {engine[:30]!r}: starts of {', '.join(ENGINES)} are bundled", field="engine")
    if engine is not None and cases is not None:
        raise UsageError("--engine is of the bundled starts; those of --cases say their engine", field="engine")
    measured = load_cases(cases) if cases is not None else bundled(engine or "vllm")
    rows, left = score(measured)
    if once:
        rows = once_per_start(rows)
    if page:
        typer.echo(serving_page(measured, rows, left), nl=False)
        return
    query = {"cases": str(cases) if cases else "bundled", "by": by.value, "once": once}
    if cases is None:
        query["engine"] = engine or "vllm"
    if each:
        typer.echo(render_each(rows, left, format=format.value, query=query))
        return
    if unscored:
        typer.echo(render_unscored(left, format=format.value, query=query))
        return
    typer.echo(render_summary(rows, left, by=by.value, format=format.value, query=query))


def _compare_log(path: Path, model: str | None, gpu: str | None, gpu_memory: str | None, format: str) -> str:
    try:
        log = read_log(path)
    except NotRecognised:
        log = None
    if log is None or log.engine != "vllm":
        from planner.validation.engines.engine_log import logged_start  # a log of vLLM does not need it

        found = logged_start(path, model=model, gpu=gpu, gpu_memory=gpu_memory)
        return render_log(found.log, found.case, found.rows, found.unscored, found.plan, format=format)
    name = model or log.flags.get("model")
    size = parse_size(gpu_memory, option="--gpu-memory") / GIB if gpu_memory is not None else None
    if not isinstance(name, str):
        raise UsageError("the log names no model: pass it, validate --log FILE MODEL", field="model")
    case = log.as_case(path.name, name, gpu=gpu, gpu_memory_gib=size)
    load_model(name)
    start = read_start(case)
    if isinstance(start, str):
        raise UsageError(f"this start cannot be planned: {start}", field="log")
    plan = start.plan()
    rows, unscored = score_start(start, plan)
    return render_log(log, case, rows, unscored, plan, format=format)
