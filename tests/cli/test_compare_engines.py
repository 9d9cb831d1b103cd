"""`compare --engine A,B`: a row an engine, the reasons, and the command of each."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.cli.running import run

WORDS = ("compare", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "8192")


def test_a_row_the_reasons_and_the_command_of_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(capsys, monkeypatch, *WORDS, "--engine", "vllm,sglang,tensorrt-llm,llama.cpp")
    assert found.status == 0, found.err
    for said in ("SGLang holds", "TensorRT-LLM holds", "llama.cpp holds", "trtllm-serve", "llama-server"):
        assert said in found.out
    assert max(map(len, found.out.splitlines())) <= 80


def test_the_printed_commands_are_planned_as_the_row_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(capsys, monkeypatch, *WORDS, "--engine", "sglang,tensorrt-llm", "--format", "json")
    rows = json.loads(found.out)["rows"]
    assert [row["engine"] for row in rows] == ["sglang", "tensorrt-llm"]
    for row in rows:
        words = shlex.split(row["command"])
        again = json.loads(run(capsys, monkeypatch, "serve", *words, "--gpu", "H100", "--format", "json").out)
        assert again["kv_cache"]["tokens"] == row["tokens"]


def test_an_engine_that_is_not_known_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(capsys, monkeypatch, *WORDS, "--engine", "vllm,sglong")
    assert found.status == 2 and "sglang" in found.err and found.out == ""
