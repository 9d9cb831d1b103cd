"""Measured vLLM 0.19.0 starts on an H100: the plan against what the engine printed."""

from __future__ import annotations

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.engines.vllm.plan import VllmPlan as ServingPlan
from planner.units import GIB
from planner.validation.cases import Case, bundled_vllm_cases

DENSE = {
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen3-8B",
    "meta-llama/CodeLlama-7b-hf",
    "google/gemma-7b",
}
# Printed sizes have two decimals.
ROUNDING_GIB = 0.005


def starts() -> list[Case]:
    return [
        case
        for case in bundled_vllm_cases()
        if case.config in DENSE
        and case.given("engine_version") == "0.19.0"
        and case.given("pipeline_parallel") == 1
        and not case.given("quantization")
        and not case.given("base_quantization")
    ]


def planned(case: Case) -> ServingPlan:
    given = case.deployment
    assert case.config is not None
    deployment = Deployment(
        gpu=find_gpu("H100"),
        gpu_memory_bytes=round(float(str(given["gpu_memory_gib"])) * GIB),
        engine_version="0.19.0",
        tensor_parallel_size=int(str(given["tensor_parallel"])),
        dtype=str(given.get("dtype") or "auto"),
        kv_cache_dtype=str(given.get("kv_cache_dtype") or "auto"),
        max_model_len=int(str(given["max_model_len"])),
        gpu_memory_utilization=float(str(given["gpu_memory_utilization"])),
        enable_prefix_caching=False,
    )
    return plan_serving(load_model(case.config), deployment)


def test_there_are_enough_starts() -> None:
    assert len(starts()) >= 20
    assert {case.config for case in starts()} == DENSE


@pytest.mark.parametrize("case", starts(), ids=lambda case: case.id)
def test_the_plan_agrees_with_the_log(case: Case) -> None:
    plan = planned(case)
    weights = case.number("weights_gib")
    component = plan.budget.component("weights")
    assert weights is not None and component is not None
    assert component.best / GIB == pytest.approx(weights, rel=0.003, abs=ROUNDING_GIB)

    printed_kv, printed_tokens = case.number("kv_cache_gib"), case.number("kv_tokens")
    assert printed_kv is not None and printed_tokens is not None
    from_printed = plan.pool.tokens(plan.pool.num_blocks(round(printed_kv * GIB)))
    assert from_printed == pytest.approx(printed_tokens, rel=0.001)

    # from nothing but the command line
    assert plan.kv_cache_bytes / GIB == pytest.approx(printed_kv, rel=0.02)
    assert plan.max_concurrency == pytest.approx(case.number("max_concurrency"), rel=0.02)


@pytest.mark.parametrize("case", starts(), ids=lambda case: case.id)
def test_the_activation_peak_agrees_with_the_log(case: Case) -> None:
    printed = case.number("activation_peak_gib")
    if printed is None:
        pytest.skip("this start's log did not print it")
    component = planned(case).budget.component("activation_peak")
    assert component is not None
    assert component.best / GIB == pytest.approx(printed, rel=0.02, abs=ROUNDING_GIB)
