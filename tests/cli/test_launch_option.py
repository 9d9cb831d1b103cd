"""`--launch SOURCE`: what launched a server or a fine-tune, for the commands that compare it with what came of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run

# 0.19.0 with 8B: 128 KiB a token; 59.7 GiB / (16 x 131,072 B) = 30,566 blocks = 489,056 tokens
LOG = """\
INFO 10-02 12:00:01 [api_server.py:1896] vLLM API server version 0.19.0
(EngineCore_DP0 pid=7) INFO 10-02 12:01:10 [gpu_worker.py:298] Available KV cache memory: 59.7 GiB
(EngineCore_DP0 pid=7) INFO 10-02 12:01:11 [kv_cache_utils.py:1087] GPU KV cache size: 489,056 tokens
"""
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of"
    " which 1.11 GiB is free. Including non-PyTorch memory, this process has 22.51 GiB memory in use."
)
COMPOSE = """\
services:
  serve:
    image: vllm/vllm-openai:v0.19.0
    command: --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --enforce-eager
"""
Fixtures = tuple[pytest.CaptureFixture[str], pytest.MonkeyPatch]


@pytest.fixture
def fixtures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fixtures:
    return capsys, monkeypatch


def test_validate_reads_the_model_and_the_flags_of_what_launched_it(fixtures: Fixtures, tmp_path: Path) -> None:
    log, compose = tmp_path / "serve.log", tmp_path / "docker-compose.yaml"
    log.write_text(LOG)
    compose.write_text(COMPOSE)
    asked = ("validate", "--log", str(log), "--gpu", "H100", "--format", "json")
    nameless = run(*fixtures, *asked)
    assert nameless.status == 2 and "MODEL" in nameless.err
    launched = json.loads(run(*fixtures, *asked, "--launch", str(compose)).out)
    rows = {row["figure"]: row for row in launched["rows"]}
    assert rows["tokens"]["planned"] == rows["tokens"]["measured"] == 489_056
    # its flags are planned: the same as when they are stated
    words = ("meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192", "--enforce-eager")
    assert json.loads(run(*fixtures, *asked, *words).out)["rows"] == launched["rows"]


def test_diagnose_plans_what_launched_it(fixtures: Fixtures, tmp_path: Path) -> None:
    text = tmp_path / "oom.txt"
    text.write_text(OOM)
    asked = ("diagnose", str(text), "--format", "json")
    for source, words in (
        ("vllm serve Qwen/Qwen3-14B --max-model-len 8192", ("--model", "Qwen/Qwen3-14B", "--max-model-len", "8192")),
        (
            "trl sft --model_name_or_path Qwen/Qwen3-8B --max_length 2048 --use_peft --dtype bfloat16",
            ("--model", "Qwen/Qwen3-8B", "--train", "--dtype", "bfloat16", "--lora-r", "16"),
        ),
    ):
        launched, stated = run(*fixtures, *asked, "--launch", source), run(*fixtures, *asked, *words)
        assert launched.status == 0, launched.err
        weights = [json.loads(one.out)["findings"][0]["plan"]["weights_bytes"] for one in (launched, stated)]
        assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("validate", "--log", "{log}", "--launch", "llama-server -m x.gguf"), "llama.cpp"),
        (("validate", "--launch", "vllm serve x"), "--log FILE"),
        (("validate", "--max-model-len", "8192"), "--log FILE"),
        (("validate", "--log", "{log}", "--once"), "--once"),
        (("diagnose", "{log}", "--launch", "llama-server -m x.gguf"), "llama.cpp"),
        (("diagnose", "{log}", "--launch", "ls -l"), "--launch"),
    ],
)
def test_mistakes(fixtures: Fixtures, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "serve.log").write_text(LOG)
    found = run(*fixtures, *(word.replace("{log}", str(tmp_path / "serve.log")) for word in words))
    assert found.status == 2 and said in found.err and found.err.count("\n") == 1 and not found.out
