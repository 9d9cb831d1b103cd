"""`formats`, through the function that the command line registers."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from planner.cli.lists.formats import formats

app = typer.Typer()
app.command()(formats)


def rows(*arguments: str) -> dict[str, dict[str, object]]:
    result = CliRunner().invoke(app, [*arguments, "--format", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["schema"] == 2
    return {f"{row['kind']} {row['name']}": row for row in found["rows"]}


def test_on_a_model() -> None:
    found = rows("meta-llama/Llama-3.1-8B-Instruct")
    # 8,030,261,248 x 2 B
    assert found["weight bfloat16"]["size_bytes"] == 16_060_522_496
    assert found["weight Q3_K_L"]["bits"] == pytest.approx(4114.265625 * 2**20 * 8 / 8_030_261_248, abs=0.001)
    assert found["cache fp8"]["token_bytes"] == 65_536  # 32 layers x 8 heads x 256
    assert found["cache fp8_ds_mla"]["token_bytes"] is None


def test_a_quantised_model_is_listed_as_published() -> None:
    found = rows("Qwen/Qwen2.5-7B-Instruct-AWQ", "--kind", "weight")
    assert next(iter(found)) == "weight as published"
    assert found["weight as published"]["size_bytes"] == found["weight awq"]["size_bytes"]


def test_without_a_model() -> None:
    found = rows()
    assert found["weight awq"]["bits"] == 4.156
    assert found["cache q8_0"]["bits"] == 8.5
