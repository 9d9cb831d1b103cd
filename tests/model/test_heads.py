"""What a model ends in: classifiers and rewards as transformers builds them, and what a pooling runner takes away."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.heads import task_of, with_classifier, without_language_head
from planner.model.load import load_model
from planner.model.names.bundled import bundled_file
from planner.model.tensors import parameters, tensors
from tests.reference.meta_model import meta_model, parameter_shapes

LLAMA, EMBEDDING = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-Embedding-8B"


def values_of(name: str, **changes: object) -> dict[str, object]:
    return {**json.loads(bundled_file(name).read_text()), **changes}


def test_a_classifier_of_one_label() -> None:
    # 8,030,261,248 - 128,256 x 4,096 of the output matrix + one row of 4,096
    values = values_of(LLAMA, architectures=["LlamaForSequenceClassification"], num_labels=1)
    spec = build_spec(RawConfig(values))
    assert parameters(spec) == 8_030_261_248 - 525_336_576 + 4_096
    assert task_of(spec) == "classify"
    assert parameters(with_classifier(load_model(LLAMA).spec, 1)) == 7_504_928_768


@pytest.mark.parametrize(
    ("name", "architecture", "labels"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen3ForSequenceClassification", 1),
        ("Qwen/Qwen3-0.6B", "Qwen3ForTokenClassification", 5),
        ("Qwen/Qwen2.5-0.5B", "Qwen2ForQuestionAnswering", 2),
        ("google/gemma-2b", "GemmaForSequenceClassification", 3),
        ("openai-community/gpt2", "GPT2ForSequenceClassification", 2),
        ("facebook/opt-125m", "OPTForSequenceClassification", 4),
        ("EleutherAI/pythia-160m", "GPTNeoXForSequenceClassification", 2),
    ],
)
def test_heads_are_those_that_transformers_builds(name: str, architecture: str, labels: int) -> None:
    id2label = {str(index): f"label {index}" for index in range(labels)}
    values = values_of(name, architectures=[architecture], id2label=id2label)
    ours = Counter(tensor.shape for tensor in tensors(build_spec(RawConfig(values))))
    assert ours == parameter_shapes(meta_model(values, architecture))


def test_a_reward_model_has_two_matrices() -> None:
    # vLLM 0.19.1 qwen2_rm.py: hidden x hidden and hidden x labels, with biases, for the output matrix
    base = load_model("Qwen/Qwen2.5-7B-Instruct").spec
    for architecture, labels in (("Qwen2ForRewardModel", 1), ("Qwen2ForProcessRewardModel", 2)):
        spec = build_spec(RawConfig(values_of("Qwen/Qwen2.5-7B-Instruct", architectures=[architecture])))
        head = 3584 * 3584 + 3584 + labels * 3584 + labels
        assert parameters(spec) == parameters(base) - 152_064 * 3584 + head
        assert task_of(spec) == "reward"


def test_a_pooling_runner_takes_the_output_matrix_away() -> None:
    # the file's 7,567,295,488: a head of 151,665 x 4,096 less
    spec = load_model(EMBEDDING).spec
    assert parameters(without_language_head(spec)) == 7_567_295_488
    assert parameters(spec) == 7_567_295_488 + 151_665 * 4_096
    tied = load_model("Qwen/Qwen3-Embedding-0.6B").spec
    assert parameters(without_language_head(tied)) == parameters(tied)


def test_tasks_by_architecture() -> None:
    assert task_of(load_model(LLAMA).spec) == "generate"
    assert task_of(load_model("BAAI/bge-m3").spec) == "embed"
    assert task_of(load_model("BAAI/bge-reranker-v2-m3").spec) == "classify"
