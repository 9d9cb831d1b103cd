"""What the user gives is used, noted or refused: every input of every command line, on at least one question."""

from __future__ import annotations

from typing import Any

import pytest

from planner import find_gpu, load_model
from planner.cli.words.questions import ask
from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import Input, inputs_of
from planner.contract.plan import ServingPlan
from planner.contract.workload import Workload
from planner.errors import PlannerError, UsageError
from tests.engines.rounds import figures, values_of

# Questions that between them give every input something to do.
VLLM: list[tuple[str, dict[str, Any]]] = [
    ("Qwen/Qwen3-8B", {"gpu": "4090", "max_model_len": 8192}),
    ("Qwen/Qwen3-8B", {"gpu": "4090", "max_model_len": 8192, "engine_version": "0.6.6"}),
    ("Qwen/Qwen3-8B", {"gpu": "H100", "max_model_len": 8192, "engine_version": "0.10.2", "tensor_parallel_size": 2}),
    ("Qwen/Qwen3-8B", {"gpu": "H100", "enable_lora": True, "quantization": "awq", "pipeline_parallel_size": 2}),
    ("Qwen/Qwen2.5-VL-7B-Instruct", {"gpu": "H100", "max_model_len": 32_768, "tensor_parallel_size": 2}),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"gpu": "H200", "max_model_len": 8192, "engine_version": "0.30.0"}),
    ("google/gemma-3-12b-it", {"gpu": "H100", "max_model_len": 32_768}),
    ("deepseek-ai/DeepSeek-V3", {"gpu": "H200", "tensor_parallel_size": 8, "max_model_len": 8192}),
]
TRANSFORMERS: list[tuple[str, dict[str, Any]]] = [
    ("meta-llama/Llama-3.2-1B", {"gpu": "A6000", "quantization": "awq"}),
    ("meta-llama/Llama-3.2-1B", {"gpu": "A6000"}),
]
TABLES = {"vllm": VLLM, "transformers": TRANSFORMERS}
EVERY = [(engine, one) for engine in TABLES for one in inputs_of(find_engine(engine).Deployment) if one.name != "gpu"]


def plan(engine: str, name: str, inputs: dict[str, Any]) -> ServingPlan:
    asked = find_engine(engine)
    values = inputs | {"gpu": find_gpu(str(inputs["gpu"]))}
    return asked.plan(load_model(name), asked.Deployment(**values))


def said(found: ServingPlan) -> dict[str, Any]:
    """What differs when an input is used or noted; the command alone does not count."""
    return figures(found) | {"notes": found.notes, "load": found.load, "points": found.points}


@pytest.mark.parametrize(("engine", "one"), EVERY, ids=lambda value: value if isinstance(value, str) else value.name)
def test_an_input_is_used_noted_or_refused(engine: str, one: Input) -> None:
    for name, inputs in TABLES[engine]:
        before = said(plan(engine, name, {key: value for key, value in inputs.items() if key != one.name}))
        for value in values_of(one):
            try:
                after = said(plan(engine, name, inputs | {one.name: value}))
            except PlannerError:
                return
            if after != before:
                return
    raise AssertionError(f"{one.spelling} has no effect anywhere, and nothing says so")


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize("words", [("--nonsense-flag", "3"), ("--nonsense-flag",), ("--banana=1",), ("--no-banana",)])
def test_a_made_up_option_is_refused_by_every_engine(engine: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="no such option"):
        ask(["Qwen/Qwen3-8B", "--engine", engine, "--gpu", "H100", *words], Workload, about="", name="serve")


@pytest.mark.parametrize("engine", engine_names())
def test_a_made_up_release_is_refused_by_every_engine(engine: str) -> None:
    words = ["Qwen/Qwen3-8B", "--engine", engine, "--gpu", "H100", "--engine-version", "banana"]
    with pytest.raises(PlannerError):
        asked = ask(words, Workload, about="", name="serve")
        assert asked is not None
        asked.engine.plan(asked.model, asked.deployment, Workload())
