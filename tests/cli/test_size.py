"""`vram-planner size` on the command line."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.cli.running import run

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def test_json_and_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "size",
        LLAMA,
        "--users",
        "500",
        "--gpu",
        "h100",
        "--gpu",
        "t4",
        "--price",
        "h100=2.5",
        "--redundancy",
        "N+1",
    )
    document = json.loads(run(capsys, monkeypatch, *words, "--format", "json").out)
    assert list(document) == ["schema", "query", "rows", "rejected", "notes"]
    row = document["rows"][0]
    assert row["evidence"] == "derived" and "not a benchmark" in document["notes"][0]
    assert row["cost_per_day"] == pytest.approx(row["total_gpus"] * 2.5 * 24)
    assert row["responses_per_day_low"] < row["responses_per_day_best"] < row["responses_per_day_high"]
    table = run(capsys, monkeypatch, *words, "--curve", "gpus")
    assert table.status == 0 and "users by GPUs" in table.out and "####" in table.out


def test_curve_as_csv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("size", LLAMA, "--users", "50", "--gpu", "h100", "--curve", "context", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(run(capsys, monkeypatch, *words).out)))
    assert rows[0].keys() == {"gpu", "tensor_parallel_size", "max_model_len", "concurrency"}
    assert rows[-1]["max_model_len"] == "131072"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--users or as --requests-per-second"),
        (("--users", "5", "--rps", "1"), "one of them"),
        (("--users", "5", "--duty-cycle", "2"), "--duty-cycle"),
        (("--users", "5", "--growth", "much"), "--growth"),
        (("--users", "5", "--price", "cheap"), "--price"),
        (("--users", "5", "--curve", "tokens"), "--curve"),
        (("--users", "5", "--redundancy", "yes"), "--redundancy"),
        (("--users", "5", "--input-len", "p50=1", "--output-len", "p90=1"), "no statistic"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    result = run(capsys, monkeypatch, "size", LLAMA, "--gpu", "h100", *words)
    assert result.status == 2 and said in result.err and result.err.count("\n") == 1 and not result.out


def test_none_carries_the_load(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(capsys, monkeypatch, "size", "meta-llama/Llama-3.1-405B-Instruct", "--users", "5", "--gpu", "4090")
    assert result.status == 1 and "does not fit" in result.out
