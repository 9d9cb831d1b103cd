"""`vram-planner check`: every launch form found there planned, one line each, for a pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from planner.cli.plan import Asked, answers_of
from planner.cli.words.help import print_help
from planner.contract.inputs import option
from planner.contract.parser import parse
from planner.contract.plan import VERDICTS
from planner.errors import PlannerError, UsageError
from planner.report.checked import failing, junit, sarif
from planner.report.launch import Planned
from planner.report.printer import printed
from planner.report.rows import JSON_SCHEMA

_MOST_PATHS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is checked against, and how it is printed."""

    gpu: Annotated[str | None, option("Card that everything is planned on.", panel="Card", common=True)] = None
    gpu_memory: Annotated[str | None, option("What the driver reports (79.19GiB).", panel="Card")] = None
    accept: Annotated[
        str, option("Which verdict counts as fitting.", panel="Answer", choices=("tight", "fits"), common=True)
    ] = "tight"
    format: Annotated[
        str, option("How to print.", panel="Answer", choices=("table", "json", "junit", "sarif"), common=True)
    ] = "table"


def check(words: Sequence[str]) -> int:
    """Plan every launch form found in files and folders: one line each.

    Exit status: 1 if anything does not fit, else 2 if anything is refused, unknown or unreadable, else 0.

    Example: vram-planner check deploy/ --gpu L40S
    """
    if not words or any(word in ("--help", "-h", "--help-all") for word in words):
        print_help("check", check.__doc__ or "", (Checked,), everything=True, subject="PATHS")
        return 0 if words else 2
    parsed = parse((Checked,), words, most_positional=_MOST_PATHS)
    asked = parsed.record(Checked)
    if not parsed.positional:
        raise UsageError("check needs files or folders", field="paths")
    rows = [row for path in parsed.positional for row in _rows(path, asked)]
    if asked.format == "json":
        query = {"paths": list(parsed.positional), "gpu": asked.gpu, "accept": asked.accept}
        print(json.dumps({"schema": JSON_SCHEMA, "query": query, "rows": rows}, indent=1, ensure_ascii=False))
    elif asked.format in ("junit", "sarif"):
        print((junit if asked.format == "junit" else sarif)(rows, asked.accept))
    else:
        print(
            printed([_line(row) for row in rows], None) if rows else "nothing there starts a server or a training run"
        )
    if any(failing(row, asked.accept) for row in rows):
        return 1
    return 2 if any(row["verdict"] in ("refused", "unknown") for row in rows) else 0


def _rows(path: str, asked: Checked) -> list[dict[str, object]]:
    question = Asked(gpu=asked.gpu, gpu_memory=asked.gpu_memory, accept=asked.accept, format="json")
    try:
        answers = answers_of(path, question, {})
    except PlannerError as error:
        return [
            {"source": path, "form": None, "tool": None, "model": None, "verdict": "unknown", "message": str(error)}
        ]
    found: list[dict[str, object]] = []
    for launch in answers.launches:
        if launch.error is not None:
            found.append(
                {
                    "source": launch.file,
                    "form": launch.form,
                    "tool": None,
                    "model": None,
                    "verdict": "unknown",
                    "message": str(launch.error),
                }
            )
    for one in answers.planned:
        source = next((launch.file for launch in answers.launches if one.plan in launch.plans), path)
        form = next((launch.form for launch in answers.launches if one.plan in launch.plans), None)
        found.append(
            {
                "source": source,
                "form": form,
                "tool": one.plan.tool,
                "model": one.plan.model,
                "verdict": _verdict(one, asked.accept),
                "message": one.message,
            }
        )
    return found


def _line(row: dict[str, object]) -> str:
    verdict = VERDICTS.get(str(row["verdict"]), str(row["verdict"]))
    said = f": {row['message']}" if row["message"] else ""
    what = f" {row['tool']} {row['model']}" if row["model"] else ""
    return f"{verdict}: {row['source']} ({row['form']}){what}{said}"


def _verdict(one: Planned, accept: str) -> str:
    """The plan's verdict; what `plan` fails for another reason than the card, such as host memory, does not fit."""
    if one.status == 1 and not (one.verdict == "tight" and accept == "fits"):
        return "does_not_fit"
    return one.verdict or "unknown"
