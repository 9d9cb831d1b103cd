"""Logs of SGLang and TensorRT-LLM beside the plan of the same start."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import NotRecognised
from planner.validation.engines.engine_log import logged_start

SGLANG = """
[2026-02-04 10:00:01] server_args=ServerArgs(model_path='Qwen/Qwen2.5-0.5B-Instruct', max_total_tokens=20480,\
 max_running_requests=128, context_length=32768, cuda_graph_max_bs=4, tp_size=1, chunked_prefill_size=8192)
[2026-02-04 10:00:02] Load weight begin. avail mem=78.43 GB
[2026-02-04 10:00:03] Load weight end. type=Qwen2ForCausalLM, avail mem=77.45 GB, mem usage=0.98 GB.
[2026-02-04 10:00:04] KV Cache is allocated. #tokens: 20480, K size: 0.12 GB, V size: 0.12 GB
[2026-02-04 10:00:07] Capture cuda graph end. Time elapsed: 0.9 s. mem usage=0.07 GB. avail mem=76.95 GB.
[2026-02-04 10:00:08] max_total_num_tokens=20480, chunked_prefill_size=8192, max_running_requests=128, context_len=32768
"""
TENSORRT = """
[TensorRT-LLM] TensorRT-LLM version: 0.15.0
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 70.48 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 4060
[TensorRT-LLM][INFO] Allocated 63.44 GiB for max tokens in paged KV cache (259840).
"""


def test_an_sglang_start_is_planned_from_its_own_arguments(tmp_path: Path) -> None:
    file = tmp_path / "serve.log"
    file.write_text(SGLANG)
    found = logged_start(file, gpu="H100")
    assert found.plan is not None and found.plan.engine_version == "0.5.8"  # the release of that day
    rows = {(row.component, row.mode): row for row in found.rows}
    assert rows["tokens", "command line"].error == 0 and rows["tokens", "given memory"].error == 0
    assert rows["running requests", "command line"].error == 0
    assert abs(rows["free before loading", "command line"].error) < 0.01
    nameless = logged_start(file)
    assert nameless.plan is None and "--gpu" in nameless.unscored[0].reason
    assert nameless.log.figure("kv_tokens") == 20480


def test_a_tensorrt_llm_start(tmp_path: Path) -> None:
    file = tmp_path / "serve.log"
    file.write_text(TENSORRT)
    found = logged_start(file, model="meta-llama/Llama-2-7b-hf", gpu="H100")
    assert found.plan is not None and found.plan.engine == "tensorrt-llm"
    pool = next(row for row in found.rows if row.component == "pool" and row.mode == "given memory")
    assert abs(pool.error) < 0.001


def test_another_text_is_not_recognised(tmp_path: Path) -> None:
    file = tmp_path / "serve.log"
    file.write_text("hello\n" * 10)
    with pytest.raises(NotRecognised):
        logged_start(file)
