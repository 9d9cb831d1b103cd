"""A healthy start's log says where the card went, line by line, and what would give cache back, priced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run

LOG = """INFO 11-29 10:00:00 [api_server.py:1] vLLM API server version 0.19.0
INFO 11-29 10:00:00 [utils.py:1] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192}
INFO 11-29 10:00:20 [gpu_model_runner.py:1] Model loading took 15.27 GiB memory and 3.1 seconds
INFO 11-29 10:00:40 [gpu_worker.py:1] Available KV cache memory: 4.52 GiB
INFO 11-29 10:00:41 [kv_cache_utils.py:1] GPU KV cache size: 32,896 tokens
INFO 11-29 10:00:50 [gpu_model_runner.py:1] Graph capturing finished in 9 secs, took 0.62 GiB
"""


def test_the_shares_add_up_and_levers_are_priced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "start.log").write_text(LOG)
    words = ("validate", "--log", str(tmp_path / "start.log"), "--gpu", "4090")
    found = json.loads(run(capsys, monkeypatch, *words, "--format", "json").out)
    shares = {row["share"]: row for row in found["where_it_went"]}
    # the card is 23.64 GiB: what lies on it and what is left are all of it, to the digits that are printed
    assert sum(row["planned_bytes"] for row in shares.values()) / 2**30 == pytest.approx(23.64, abs=0.01)
    printed = {name: row["printed_gib"] for name, row in shares.items() if row["printed_gib"] is not None}
    assert printed == {"weights": 15.27, "cuda_graphs": 0.62, "kv_cache": 4.52}
    flags = {row["flag"]: row["bytes"] for row in found["gives_back"]}
    # 16-bit weights of 8.19 billion, the embedding and the head of 0.62 billion each kept: a byte a weight is saved
    assert flags["--quantization fp8"] == pytest.approx(6.95e9, rel=0.01)
    text = run(capsys, monkeypatch, *words).out
    assert "where the card went" in text and "what would give some back" in text
    assert max(map(len, text.splitlines())) <= 80 or "flags:" in text


def test_without_a_card_nothing_is_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "start.log").write_text(LOG)
    found = run(capsys, monkeypatch, "validate", "--log", str(tmp_path / "start.log"))
    assert "where the card went" not in found.out
