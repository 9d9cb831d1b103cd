"""`vram-planner schema` and `engines`: the contract, and who can be planned."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import inputs_of
from planner.report.rows import Column, Format, render_rows


def schema(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A command; without one, the list.")] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --format json.

    Example: vram-planner schema serve
    """
    from planner.report.contracts.table import contract_names, json_schema

    if name is None:
        typer.echo("\n".join(contract_names()))
        return
    typer.echo(json.dumps(json_schema(name), indent=2))


def engines(
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List the engines that can be planned, with the releases that are described.

    Example: vram-planner engines --format json
    """
    rows = []
    for name in engine_names():
        engine = find_engine(name)
        oldest, newest = engine.versions
        own = sum(not one.option.ours for one in inputs_of(engine.Deployment))
        rows.append({"name": name, "title": engine.title, "oldest": oldest, "newest": newest, "inputs": own})
    columns = [
        Column(field="name", heading="--engine"),
        Column(field="title", heading="engine"),
        Column(field="oldest", heading="from"),
        Column(field="newest", heading="to"),
        Column(field="inputs", heading="options", right=True),
    ]
    typer.echo(render_rows(rows, columns=columns, format=format, query={}))
