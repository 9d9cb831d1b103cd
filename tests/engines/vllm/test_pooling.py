"""Pooling models: no head over the vocabulary, no sampler. Sizes from checkpoints and printed starts."""

from __future__ import annotations

import json

import pytest

from planner import Deployment, ServingPlan, find_gpu, load_model, plan_serving
from planner.model.from_config import model_from_config
from planner.model.names.bundled import bundled_file
from planner.units import GIB

EMBEDDING = "Qwen/Qwen3-Embedding-8B"


def plan(name: str, **more: object) -> ServingPlan:
    options = {"gpu": find_gpu("H100"), "engine_version": "0.12.0"} | more
    return plan_serving(load_model(name), Deployment(**options))  # type: ignore[arg-type]


def test_a_printed_start_of_an_embedding_model() -> None:
    """vLLM 0.12.0 on H100, 8,192 tokens: 14.1062 GiB of weights, 56.24 GiB of cache."""
    found = plan(EMBEDDING, runner="pooling", max_model_len=8192, max_num_batched_tokens=8192)
    assert found.budget.weights.numel == 7_567_356_928  # the embedding padded to 151,680 rows
    weights = found.budget.component("weights")
    assert weights is not None and abs(weights.best / GIB - 14.1062) <= 0.01
    assert abs(found.kv_cache_bytes / GIB - 56.24) <= 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"runner": "pooling"},
        {"convert": "embed"},
        {"convert": "classify", "runner": "pooling"},
        {"task": "embed", "engine_version": "0.10.2"},
        {"task": "reward", "engine_version": "0.8.5"},
    ],
)
def test_what_makes_a_pooling_model(options: dict[str, object]) -> None:
    """Llama-3.1-8B without its head of 128,256 x 4,096, which is no embedding's twin."""
    found = plan("meta-llama/Llama-3.1-8B-Instruct", max_model_len=8192, **options)
    assert found.budget.weights.numel == 8_030_261_248 - 128_256 * 4096
    peak = found.budget.component("activation_peak")
    assert peak is not None and "sampler" not in peak.formula.split("; the lesser")[0].replace("sampler needs", "")


def test_a_tied_head_stays_as_the_embedding() -> None:
    tied = [plan("Qwen/Qwen2.5-0.5B-Instruct", **more).budget.weights.numel for more in ({}, {"runner": "pooling"})]
    assert tied[0] == tied[1]


@pytest.mark.parametrize(
    ("name", "architecture", "labels", "numel"),
    [
        # the head of 128,256 x 4,096 becomes one row, or three rows with biases
        ("meta-llama/Llama-3.1-8B-Instruct", "LlamaForSequenceClassification", 1, 7_504_928_768),
        ("meta-llama/Llama-3.1-8B-Instruct", "LlamaForTokenClassification", 3, 7_504_924_672 + 3 * 4097),
        # 152,064 x 3,584 becomes two matrices with biases
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2ForRewardModel", 1, 7_070_619_136 + 3584 * 3585 + 3585),
        ("Qwen/Qwen3-8B", "Qwen3Model", 2, 8_190_735_360 - 151_936 * 4096),
    ],
)
def test_the_class_of_the_config_makes_a_pooling_model(name: str, architecture: str, labels: int, numel: int) -> None:
    values = json.loads(bundled_file(name).read_text()) | {"architectures": [architecture], "num_labels": labels}
    model = model_from_config(values, name="tuned", origin="test")
    found = plan_serving(model, Deployment(gpu=find_gpu("H100"), engine_version="0.19.0", max_model_len=8192))
    assert found.budget.weights.numel == numel
    peak = found.budget.component("activation_peak")
    assert peak is not None and "sampler" not in peak.formula.split("; the lesser")[0].replace("sampler needs", "")
    assert any("vLLM pools" in note for note in found.notes)
    kept = plan_serving(
        model, Deployment(gpu=find_gpu("H100"), engine_version="0.19.0", max_model_len=8192, runner="generate")
    )
    assert not any("vLLM pools" in note for note in kept.notes)


def test_an_embedding_model_pools_by_itself() -> None:
    """Its sentence-transformers modules say so; the weights are those of the printed start above."""
    found = plan(EMBEDDING, max_model_len=8192, max_num_batched_tokens=8192)
    assert found.budget.weights.numel == 7_567_356_928
    assert plan(EMBEDDING, max_model_len=8192, runner="generate").budget.weights.numel > 8_000_000_000
    for name in ("zai-org/chatglm3-6b", "OpenGVLab/InternVL3-8B"):
        assert not any("vLLM pools" in note for note in plan(name, max_model_len=8192).notes)
