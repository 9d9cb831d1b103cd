"""Cards that an engine does not run on are refused with one line; those that it runs on are planned."""

from __future__ import annotations

import pytest

from planner import find_gpu, plan_serving
from planner.contract.engine import find_engine
from planner.errors import UsageError


@pytest.mark.parametrize(
    ("engine", "gpu", "words"),
    [
        ("sglang", "M3 Max 64GB", "Apple's"),
        ("sglang", "V100-32GB", "7.5"),
        ("tensorrt-llm", "M3 Max 64GB", "Apple's"),
        ("tensorrt-llm", "MI300X", "AMD's"),
        ("tensorrt-llm", "T4", "8.0"),
    ],
)
def test_a_card_that_the_engine_does_not_run_on(engine: str, gpu: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_serving("Qwen/Qwen3-0.6B", find_engine(engine).Deployment(gpu=find_gpu(gpu)))


@pytest.mark.parametrize(
    ("engine", "gpu"), [("sglang", "T4"), ("sglang", "MI300X"), ("tensorrt-llm", "L4"), ("llama.cpp", "M3 Max 64GB")]
)
def test_a_card_that_it_runs_on(engine: str, gpu: str) -> None:
    plan = plan_serving("Qwen/Qwen3-0.6B", find_engine(engine).Deployment(gpu=find_gpu(gpu)))
    assert plan.verdict in ("fits", "tight")
