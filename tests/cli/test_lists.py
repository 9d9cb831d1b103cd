"""`gpus` and `models` through their command functions: exit status, stdout and stderr."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from planner.cli.lists.gpus import gpus
from planner.cli.lists.models import models


def run(command: Callable[..., None], *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    # a terminal that holds every column; narrower ones break words
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))


def test_gpus_lists_what_the_driver_reports() -> None:
    result = run(gpus, "h100", "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == 2
    assert document["query"] == {"text": "h100"}
    sxm = next(row for row in document["rows"] if row["id"] == "h100-sxm-80gb")
    assert sxm["total_memory_bytes"] == 85_029_615_043  # 79.19 GiB
    assert sxm["evidence"] == "measured"
    assert sxm["context_bytes"] == 522 * 2**20


def test_gpus_says_what_is_assumed_and_what_is_unknown() -> None:
    table = run(gpus, "4070").stdout
    line = next(line for line in table.splitlines() if line.startswith("rtx-4070-super"))
    assert line.split()[6:10] == ["11.58", "12", "assumed", "504"]
    (row,) = json.loads(run(gpus, "mi250x", "--format", "json").stdout)["rows"]
    assert row["total_memory_bytes"] is None
    assert row["evidence"] is None


def test_models_lists_every_bundled_model_with_its_confidence() -> None:
    rows = list(csv.DictReader(io.StringIO(run(models, "--format", "csv").stdout)))
    assert len(rows) >= 489
    by_id = {row["id"]: row for row in rows}
    llama = by_id["meta-llama/Llama-3.1-8B-Instruct"]
    assert llama["model_type"] == "llama"
    assert llama["parameters"] == "8030261248"
    assert llama["confidence"] == "copied-config"
    assert by_id["nvidia/DeepSeek-V3.1-NVFP4"]["parameters"] == ""  # its published total counts packed elements
    assert by_id["nvidia/DeepSeek-V3.1-NVFP4"]["quantization"]


def test_models_can_be_narrowed() -> None:
    result = run(models, "mistral AWQ", "--format", "markdown")
    assert result.exit_code == 0
    assert "| TheBloke/Mistral-7B-Instruct-v0.2-AWQ" in result.stdout
    assert "Llama" not in result.stdout


@pytest.mark.parametrize("command", [gpus, models])
def test_nothing_found_is_said_on_stderr(command: Callable[..., None]) -> None:
    result = run(command, "no-such-thing", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["rows"] == []
    assert "no-such-thing" in result.stderr


def test_an_unknown_format_is_wrong_usage() -> None:
    assert run(gpus, "--format", "yaml").exit_code == 2
