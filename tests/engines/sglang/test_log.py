"""A start-up log, in the lines of the releases."""

from __future__ import annotations

import pytest

from planner.engines.sglang.log import read_log

LOG = """
[2026-02-04 10:00:01] server_args=ServerArgs(model_path='qwen/qwen2.5-0.5b-instruct', tokenizer_path='x', dtype='auto',\
 kv_cache_dtype='auto', mem_fraction_static=0.841, max_running_requests=128, tp_size=2, disable_cuda_graph=False,\
 enable_dp_attention=True, chunked_prefill_size=8192, api_key='SECRET', max_total_tokens=None)
[10:00:02 TP0] Init torch distributed ends. mem usage=0.09 GB
[10:00:02 TP0] Load weight begin. avail mem=78.43 GB
[10:00:02 TP1] Load weight begin. avail mem=77.43 GB
[10:00:03 TP0] Load weight end. type=Qwen2ForCausalLM, avail mem=77.45 GB, mem usage=0.98 GB.
[10:00:03 TP1] Load weight end. type=Qwen2ForCausalLM, avail mem=76.45 GB, mem usage=0.99 GB.
[10:00:04 TP0] Mamba Cache is allocated. max_mamba_cache_size: 38, conv_state size: 0.03GB, ssm_state size: 2.74GB
[10:00:04 TP0] KV Cache is allocated. #tokens: 20480, K size: 0.12 GB, V size: 0.12 GB
[10:00:04 TP0] Memory pool end. avail mem=77.12 GB
[10:00:05 TP0] Load weight end. type=Draft, dtype=torch.bfloat16, avail mem=70.00 GB, mem usage=5.46 GB.
[10:00:05 TP0] KV Cache is allocated. #tokens: 20480, K size: 0.01 GB, V size: 0.01 GB
[10:00:06 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=77.02 GB
[10:00:07 TP0] Capture cuda graph end. Time elapsed: 0.9 s. mem usage=0.07 GB. avail mem=76.95 GB.
[10:00:08 TP0] max_total_num_tokens=20480, chunked_prefill_size=8192, max_prefill_tokens=16384,\
 max_running_requests=128, context_len=32768, available_gpu_mem=76.95 GB
"""


def test_figures_and_words() -> None:
    found = read_log(LOG.replace("\\\n", "").splitlines())
    assert found.measured == {
        "init_dist_gib": 0.09,
        "avail_before_load_gib": 77.43,  # the poorest rank
        "avail_after_load_gib": 76.45,
        "weights_gib": 0.99,
        "mamba_slots": 38,
        "mamba_conv_gib": 0.03,
        "mamba_ssm_gib": 2.74,
        "kv_tokens": 20480,
        "k_size_gib": 0.12,
        "v_size_gib": 0.12,
        "avail_after_pool_gib": 77.12,
        "draft_weights_gib": 5.46,
        "avail_after_draft_load_gib": 70.0,
        "draft_k_size_gib": 0.01,
        "draft_v_size_gib": 0.01,
        "avail_before_graph_gib": 77.02,
        "graph_gib": 0.07,
        "available_end_gib": 76.95,
        "max_running_requests": 128,
        "context_length": 32768,
    }
    words = " ".join(found.words)
    assert found.stated["model"] == "qwen/qwen2.5-0.5b-instruct" and "--tp-size 2" in words
    assert "--mem-fraction-static 0.841" in words and "--enable-dp-attention" in words
    assert "SECRET" not in words and "--disable-cuda-graph" not in words
    assert found.error is None


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "HIP out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_errors(line: str) -> None:
    assert read_log([line]).error is not None


def test_hostile_lines_are_bounded() -> None:
    found = read_log(["max_total_num_tokens=" + "9" * 100_000, "#tokens: " * 50_000, "ServerArgs(" + "a=" * 50_000])
    assert found.measured == {} and found.words == ()
