"""`vram-planner validate`: score the planner against measured cases, or a start-up log of yours."""

from __future__ import annotations

from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.report.rows import Format
from planner.report.validation import accuracy_page, render_summary
from planner.validation.cases import bundled_vllm_cases, load_cases
from planner.validation.scoring import once_per_start, score


class By(str, Enum):
    """What the summary is split by."""

    COMPONENT = "component"
    MODEL = "model"
    VERSION = "version"
    GPU = "gpu"


def validate(
    cases: Annotated[
        Path | None, typer.Option("--cases", help="Measured cases, one JSON object a line (see docs/accuracy.md).")
    ] = None,
    by: Annotated[By, typer.Option("--by", help="Split the errors by this.")] = By.COMPONENT,
    once: Annotated[bool, typer.Option("--once", help="Count each distinct start once.")] = False,
    page: Annotated[bool, typer.Option("--accuracy-page", help="Print the accuracy page in Markdown.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Score the planner against measured vLLM starts: errors by figure, and why cases were left out.

    Examples: vram-planner validate; vram-planner validate --by version; vram-planner validate --cases mine.jsonl
    """
    measured = load_cases(cases) if cases is not None else bundled_vllm_cases()
    rows, unscored = score(measured)
    if once:
        rows = once_per_start(rows)
    if page:
        typer.echo(accuracy_page(measured, rows, unscored, date=date.today().isoformat()), nl=False)
        return
    query = {"cases": str(cases) if cases else "bundled", "by": by.value, "once": once}
    typer.echo(render_summary(rows, unscored, by=by.value, format=format.value, query=query))
