"""Logs of every engine beside the plan of the same start: whose it is, what is planned, who beats whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.contract.engine import engine_names, find_engine
from planner.contract.parser import parse
from planner.contract.start_log import ReadsLogs
from planner.errors import NotRecognised
from planner.validation.logged import LoggedStart, logged_start, read_start_log

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


LLAMA = """
build: 7400 (abc) with gcc
load_tensors: offloaded 37/37 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   333.84 MiB
load_tensors:        CUDA0 model buffer size =  4455.34 MiB
print_info: file type   = Q4_K - Medium
llama_context: n_ctx         = 16384
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: n_seq_max     = 4
llama_context: kv_unified    = true
llama_context: flash_attn    = enabled
llama_kv_cache:      CUDA0 KV buffer size =  2304.00 MiB
"""


def compared(file: Path, text: str, *words: str, model: str | None = None, launch: str = "") -> LoggedStart:
    file.write_text(text)
    log = read_start_log(file)
    records, takes = [log.engine.Deployment], log.engine.takes
    launched = parse(records, launch.split(), other=takes) if launch else None
    return logged_start(log, model=model, stated=parse(records, words, other=takes), launched=launched)


def test_engines_that_read_logs_say_so() -> None:
    read = {name for name in engine_names() if isinstance(find_engine(name), ReadsLogs)}
    assert read == set(engine_names()) - {"transformers"}


@pytest.mark.parametrize(("text", "engine"), [(SGLANG, "sglang"), (TENSORRT, "tensorrt-llm"), (LLAMA, "llama.cpp")])
def test_whose_log_it_is(tmp_path: Path, text: str, engine: str) -> None:
    file = tmp_path / "serve.log"
    file.write_text(text)
    log = read_start_log(file)
    assert log.engine.name == engine
    with pytest.raises(NotRecognised):
        read_start_log(file, engine="vllm")


def test_an_sglang_start_is_planned_from_its_own_arguments(tmp_path: Path) -> None:
    found = compared(tmp_path / "serve.log", SGLANG, "--gpu", "H100")
    assert found.plan is not None and found.plan.engine_version == "0.5.8"  # the release of that day
    rows = {(row.component, row.mode): row for row in found.rows}
    assert rows["tokens", "command line"].error == 0 and rows["tokens", "given memory"].error == 0
    assert rows["running requests", "command line"].error == 0
    assert abs(rows["free before loading", "command line"].error) < 0.01


def test_a_log_without_a_card_is_compared_in_what_does_not_depend_on_it(tmp_path: Path) -> None:
    found = compared(tmp_path / "serve.log", SGLANG)
    assert {row.mode for row in found.rows} == {"given memory"}
    assert ("command line", "not known: total memory") in [(one.mode, one.reason) for one in found.unscored]
    assert found.log.start.measured["kv_tokens"] == 20480


def test_the_caller_beats_the_log_and_the_log_what_launched_it(tmp_path: Path) -> None:
    launch = "--gpu 4090 --max-running-requests 7 --chunked-prefill-size 4096 --disable-radix-cache"
    found = compared(tmp_path / "a.log", SGLANG, "--gpu", "H100", "--context-length", "4096", launch=launch)
    assert found.plan is not None
    asked = found.plan.deployment
    assert (asked.gpu.id, asked.context_length) == ("h100-sxm-80gb", 4096)  # stated
    assert (asked.max_running_requests, asked.chunked_prefill_size) == (128, 8192)  # printed
    assert asked.disable_radix_cache is True  # only in the command


def test_a_tensorrt_llm_start(tmp_path: Path) -> None:
    found = compared(tmp_path / "serve.log", TENSORRT, "--gpu", "H100", model="meta-llama/Llama-2-7b-hf")
    assert found.plan is not None and found.plan.engine == "tensorrt-llm"
    pool = next(row for row in found.rows if row.component == "pool" and row.mode == "given memory")
    assert abs(pool.error) < 0.001


def test_a_llama_cpp_start(tmp_path: Path) -> None:
    """16,384 cells of 36 layers x 2 x 8 heads x 128 values in 16 bit are 2,304 MiB."""
    found = compared(tmp_path / "serve.log", LLAMA, "--gpu", "4090", model="Qwen/Qwen3-8B")
    rows = {row.component: row for row in found.rows}
    assert rows["kv CUDA0"].planned == rows["kv CUDA0"].measured == 16_384 * 36 * 2 * 8 * 128 * 2 / 2**30
    assert abs(rows["model CUDA0"].error) < 0.001


def test_another_text_is_not_recognised(tmp_path: Path) -> None:
    file = tmp_path / "serve.log"
    file.write_text("hello\n" * 10)
    with pytest.raises(NotRecognised):
        read_start_log(file)
