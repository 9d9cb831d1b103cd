"""What `validate` could not score is listed by case; wrong values in a file of cases are named."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from planner.errors import SourceError
from planner.validation.cases import bundled_vllm_cases, load_cases
from planner.validation.scoring import score
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
QWEN = {"model": "Qwen/Qwen3-8B", "config": "Qwen/Qwen3-8B"}
VERSION = {"engine_version": "0.19.0", "gpu": "H100"}
CASES: tuple[dict[str, object], ...] = (
    {"id": "good", **QWEN, "deployment": VERSION, "measured": {"weights_gib": 15.27}},
    {"id": "empty", **QWEN, "deployment": VERSION, "measured": {"weights_gib": 0, "kv_cache_gib": None}},
    {"id": "nameless", "model": "my/own", "measured": {"weights_gib": 3.0}},
)


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(case) for case in CASES))
    return str(path)


def test_json_has_the_list_with_reasons(cases: str, capsys: Capture, monkeypatch: Patch) -> None:
    found = json.loads(run(capsys, monkeypatch, "validate", "--cases", cases, "--format", "json").out)
    assert [row["worst_case"] for row in found["rows"]] == ["good"]
    assert {(item["id"], item["reason"]) for item in found["unscored"]} == {
        ("empty", "weights_gib is 0"),
        ("empty", "kv_cache_gib is null"),
        ("nameless", "no config: the model could not be identified"),
    }


def test_the_list_alone_in_csv(cases: str, capsys: Capture, monkeypatch: Patch) -> None:
    text = run(capsys, monkeypatch, "validate", "--cases", cases, "--unscored", "--format", "csv").out
    assert [row["id"] for row in csv.DictReader(io.StringIO(text))] == ["empty", "empty", "nameless"]


def test_the_table_names_the_first_cases_of_each_reason(cases: str, capsys: Capture, monkeypatch: Patch) -> None:
    assert "(nameless)" in run(capsys, monkeypatch, "validate", "--cases", cases).out
    bundled = run(capsys, monkeypatch, "validate").out
    assert "--unscored" in bundled and " more)" in bundled


def test_every_bundled_case_is_scored_or_listed() -> None:
    rows, unscored = score(bundled_vllm_cases())
    named = {row.case.id for row in rows} | {item.case.id for item in unscored}
    assert named == {case.id for case in bundled_vllm_cases()}


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("measured", "weights_gib", "15"),
        ("measured", "kv_cache_gib", True),
        ("measured", "kv_tokens", 10.5),
        ("measured", "max_concurrency", [3]),
        ("deployment", "tensor_parallel", -1),
        ("deployment", "tensor_parallel", 0),
        ("deployment", "max_model_len", "8192"),
        ("deployment", "gpu_memory_utilization", 90),
        ("deployment", "gpu_memory_gib", 0),
        ("deployment", "enforce_eager", "yes"),
        ("deployment", "engine_version", 0.19),
        ("deployment", "other_flags", "--enable-lora"),
    ],
)
def test_a_wrong_value_is_named_with_its_case_and_key(tmp_path: Path, part: str, key: str, value: object) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"id": "mine-7", **QWEN, part: {key: value}}))
    with pytest.raises(SourceError, match=rf"line 1: case mine-7: {part} {key} must be"):
        load_cases(path)


@pytest.mark.parametrize("text", ["Infinity", "NaN", "1e999", "1" + "0" * 400])
def test_what_is_no_finite_number_is_no_figure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'{{"id": "mine-7", "model": "a/b", "measured": {{"weights_gib": {text}}}}}')
    with pytest.raises(SourceError, match="weights_gib must be a number"):
        load_cases(path)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_cases_is_an_error(tmp_path: Path, text: str, capsys: Capture, monkeypatch: Patch) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text(text)
    got = run(capsys, monkeypatch, "validate", "--cases", str(path))
    assert got.status == 2 and "holds no case" in got.err and got.out == ""
