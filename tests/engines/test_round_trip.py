"""The law of the round trip: the printed command, planned again, gives the same plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import find_gpu, load_model
from planner.contract.engine import find_engine
from planner.contract.inputs import inputs_of
from planner.contract.lengths import parse_lengths
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.validation.cases import bundled_vllm_cases
from planner.validation.starts import Start, read_start
from tests.engines.rounds import again, deployments, figures, values_of

MODELS = [
    "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-20b",
]
CARDS = ["H100", "4090", "T4", "H200"]
WORKLOADS = st.builds(
    Workload,
    concurrency=st.sampled_from([1, 16]),
    input_len=st.sampled_from([None, parse_lengths("600", option="--input-len")]),
    output_len=st.sampled_from([None, parse_lengths("200", option="--output-len")]),
    accept=st.sampled_from(["tight", "fits"]),
)


def plan_and_again(engine: str, name: str, card: str, inputs: dict[str, Any], workload: Workload) -> None:
    asked = find_engine(engine)
    try:
        plan = asked.plan(load_model(name), asked.Deployment(gpu=find_gpu(card), **inputs), workload)
    except PlannerError:
        assume(False)
    assert figures(again(plan)) == figures(plan)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(CARDS), deployments(find_engine("vllm")), WORKLOADS)
def test_vllm(name: str, card: str, inputs: dict[str, Any], workload: Workload) -> None:
    plan_and_again("vllm", name, card, inputs, workload)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS[:2]), st.sampled_from(CARDS), deployments(find_engine("transformers")), WORKLOADS)
def test_transformers(name: str, card: str, inputs: dict[str, Any], workload: Workload) -> None:
    plan_and_again("transformers", name, card, inputs, workload)


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_every_declared_input_takes_part(engine: str) -> None:
    """A new input without values to try has to be given some in tests/engines/rounds.py."""
    left = {one.name for one in inputs_of(find_engine(engine).Deployment) if not values_of(one)}
    assert left <= {"gpu"}


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        # found not to hold: what the sampler or runner is forced to, host memory, a described export, an allowed length
        ("Qwen/Qwen3-8B", {"sampler": "pytorch"}),
        ("Qwen/Qwen3-8B", {"model_runner": "v0", "engine_version": "0.8.5"}),
        ("Qwen/Qwen3-8B", {"swap_space_bytes": 16 << 30, "engine_version": "0.6.6"}),
        ("Qwen/Qwen3-8B", {"quantization": "fp8", "quantize_lm_head": True}),
        ("Qwen/Qwen3-8B", {"quantization": "awq", "group_size": 32}),
        (
            "Qwen/Qwen3-8B",
            {"hf_overrides": '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}', "max_model_len": 100_000},
        ),
        ("Qwen/Qwen3-8B", {"allow_long_max_model_len": True, "max_model_len": 300_000}),
        ("Qwen/Qwen3-8B", {"passed": ("--moe-backend", "triton", "--port", "80"), "engine_version": "0.33.0"}),
        ("Qwen/Qwen3-8B", {"instances": 2, "gpu_memory_utilization": 0.4}),
        # a switch turned off is not turned on
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"enable_prefix_caching": False, "engine_version": "0.30.0"}),
        ("Qwen/Qwen3-8B", {"enable_chunked_prefill": False, "max_model_len": 32_768}),
    ],
)
def test_what_was_once_lost_on_the_way(name: str, inputs: dict[str, Any]) -> None:
    engine = find_engine("vllm")
    plan = engine.plan(load_model(name), engine.Deployment(gpu=find_gpu("H100"), **inputs))
    second = again(plan)
    assert figures(second) == figures(plan)
    assert second.deployment.passed == inputs.get("passed", ())


def bundled() -> list[Start]:
    found = (read_start(case) for case in bundled_vllm_cases())
    return [start for start in found if isinstance(start, Start)]


def test_bundled_starts() -> None:
    """Every sixth of them; all together take half a minute."""
    starts = bundled()[::6]
    assert len(starts) > 30
    for start in starts:
        try:
            plan = start.plan()
        except PlannerError:
            continue
        assert figures(again(plan)) == figures(plan), start
