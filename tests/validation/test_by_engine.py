"""Starts of several engines in one file, each scored by its engine's figures."""

from __future__ import annotations

import json
from pathlib import Path

from planner.validation.cases import load_cases
from planner.validation.engines.by_engine import bundled, score


def test_a_file_may_mix_engines(tmp_path: Path) -> None:
    lines = [
        {
            "id": "s",
            "source": "made",
            "engine": "sglang",
            "engine_version": "0.5.9",
            "model": "Qwen3-0.6B",
            "config": "Qwen/Qwen3-0.6B",
            "deployment": {"tensor_parallel": 1, "mem_fraction_static": 0.5, "page_size": 16},
            # 20 - 20 x (1 - 0.5) - 1 = 9 GiB = 9 x 2^30 / (28 layers x 2 x 8 heads x 128 x 2 B) = 84,260 tokens
            "measured": {"avail_before_load_gib": 20, "avail_after_load_gib": 19, "kv_tokens": 84256},
        },
        {
            "id": "t",
            "source": "made",
            "engine": "tensorrt_llm",
            "engine_version": "0.17",
            "model": "any",
            "config": None,
            "deployment": {"kv_cache_free_gpu_memory_fraction": 0.5},
            "measured": {"free_at_kv_gib": 40, "kv_size_gib": 20},
        },
        {
            "id": "old",
            "source": "made",
            "engine": "tensorrt_llm",
            "engine_version": "0.4",
            "model": "any",
            "config": None,
            "deployment": {},
            "measured": {"free_at_kv_gib": 40, "kv_size_gib": 20},
        },
        {"id": "x", "source": "made", "engine": "mlc", "model": "any", "config": "Qwen/Qwen3-0.6B", "measured": {}},
    ]
    path = tmp_path / "starts.jsonl"
    path.write_text("\n".join(json.dumps({"quality": "A", "deployment": {}} | line) for line in lines))
    rows, left = score(load_cases(path))
    found = {(row.case.id, row.component): (row.planned, row.measured) for row in rows}
    assert found["s", "tokens"] == (84256, 84256)  # whole pages of 16
    assert found["t", "pool"] == (20, 20)
    reasons = {item.case.id: item.reason for item in left}
    assert "0.4" in reasons["old"] and reasons["x"] == "engine mlc is not vLLM"


def test_what_is_not_understood_keeps_a_start_from_the_command_line(tmp_path: Path) -> None:
    start = {
        "id": "s",
        "source": "made",
        "engine": "sglang",
        "model": "Qwen3-0.6B",
        "config": "Qwen/Qwen3-0.6B",
        "quality": "A",
        "deployment": {"gpu": "H100", "tensor_parallel": 4, "dp_attention": True, "data_parallel": 2, "turbo": 3},
        "measured": {"kv_tokens": 100},
    }
    path = tmp_path / "starts.jsonl"
    path.write_text(json.dumps(start))
    rows, left = score(load_cases(path))
    assert not rows and any(item.reason == "turbo is not understood" for item in left)


def test_bundled_starts_by_engine() -> None:
    assert (len(bundled("sglang")), len(bundled("tensorrt-llm"))) == (52, 12)
