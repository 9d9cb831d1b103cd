"""`vram-planner models`: the models that can be planned without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from planner.report.rows import Column, Format, render_rows


def models(
    text: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="Only models whose name, type or architecture has these words.")
    ] = "",
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List the bundled models, with how sure their configuration is.

    Confidence: verbatim (a copy of the published file), copied-config (from another program's copy of it), sibling
    (the file of a model of the same shape), reconstructed-exact (facts from public tables; the parameter count agrees
    exactly with the published one), reconstructed-uncorroborated (no published count to compare with), quant-variant
    (the base model's file with the quantisation of the export). JSON and CSV add the sources.

    Examples: vram-planner models qwen3; vram-planner models mamba --format json
    """
    rows = [row for row in _rows() if _has_words(row, text)]
    if not rows:
        typer.echo(f"no bundled model has {text!r} in its name, type or architecture", err=True)
    typer.echo(render_rows(rows, columns=_COLUMNS, format=format, query={"text": text}))


def _has_words(row: dict[str, object], text: str) -> bool:
    searched = f"{row['id']} {row['model_type']} {row['architecture']}".casefold()
    return all(word in searched for word in text.casefold().split())


def _rows() -> Iterator[dict[str, object]]:
    for path in sorted(_folder().glob("*.json"), key=lambda path: path.name.casefold()):
        config = json.loads(path.read_bytes())
        source = config["_source"]
        architectures = config.get("architectures") or [None]
        quantization = config.get("quantization_config") or {}
        packed = config.get("_hf_quant_config", {}).get("quantization", {})
        yield {
            "id": path.stem.replace("--", "/", 1),
            "model_type": config["model_type"],
            "architecture": architectures[0],
            "parameters": None if source["count_status"] == "n/a-packed" else source["params_total"],
            "parameters_source": source["params_total_source"],
            "count_status": source["count_status"],
            "dtype": source["declared_dtype"],
            "quantization": quantization.get("quant_method") or packed.get("quant_algo"),
            "weights_bytes": source["weights_bytes"],
            "confidence": source["confidence"],
            "fields_not_tested_by_count": source["fields_not_tested_by_count"],
            "source": source["source"],
        }


def _folder() -> Path:
    """model_configs: inside the package when it is installed, beside it in a checkout."""
    package = Path(str(resources.files("planner")))
    installed = package / "model_configs"
    return installed if installed.is_dir() else package.parent / "model_configs"


def _count(value: object) -> str:
    if not isinstance(value, int):
        return "-"
    return f"{value / 10**9:,.2f} B" if value >= 10**9 else f"{value / 10**6:,.1f} M"


_COLUMNS = (
    Column(field="id", heading="Model"),
    Column(field="model_type", heading="Type"),
    Column(field="parameters", heading="Parameters", text=_count, right=True),
    Column(field="dtype", heading="dtype"),
    Column(field="quantization", heading="Quantization"),
    Column(field="confidence", heading="Confidence"),
)
