"""One model under several names: renamed makers, copies, Ollama's tags, the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import SourceError
from planner.model.load import load_model
from planner.model.names.bundled import bundled_names, siblings
from planner.model.names.resolve import nearest_to, resolve_bundled, resolve_name
from planner.model.names.spelling import ollama_tags


@pytest.mark.parametrize(
    ("name", "base", "assumed"),
    [
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct", False),
        ("meta-llama/Llama-3-8B", "meta-llama/Meta-Llama-3-8B", False),
        ("THUDM/GLM-4-9B-0414", "zai-org/GLM-4-9B-0414", False),
        ("CohereForAI/aya-expanse-8b", "CohereLabs/aya-expanse-8b", False),
        ("unsloth/gemma-2-2b-it", "google/gemma-2-2b-it", True),
        ("NousResearch/Llama-2-70b-chat-hf", "meta-llama/Llama-2-70b-chat-hf", True),
        ("Qwen/Qwen3-VL-8B-Thinking", "Qwen/Qwen3-VL-8B-Instruct", True),
        ("google/gemma-4-12B", "google/gemma-4-12B-it", True),
    ],
)
def test_another_name_of_a_bundled_model(name: str, base: str, assumed: bool) -> None:
    model = load_model(name)
    assert (model.base or model.id, bool(model.spec.assumed)) == (base, assumed)
    assert model.parameters == load_model(base).parameters


@pytest.mark.parametrize(
    ("tag", "base", "mix"),
    [
        ("llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("llama3.1", "meta-llama/Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("llama3.1:latest", "meta-llama/Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("qwen2.5:14b-instruct-q8_0", "Qwen/Qwen2.5-14B-Instruct", "Q8_0"),
        ("gemma3:12b", "google/gemma-3-12b-it", "Q4_K_M"),
        ("gpt-oss:20b", "openai/gpt-oss-20b", "MXFP4_MOE"),
        ("hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q6_K_L", "meta-llama/Llama-3.2-3B-Instruct", "Q6_K_L"),
        ("unsloth/Qwen3-32B-GGUF:q5_k_m", "Qwen/Qwen3-32B", "Q5_K_M"),
    ],
)
def test_tags_and_mixes_after_a_colon(tag: str, base: str, mix: str) -> None:
    model = load_model(tag)
    assert (model.base, model.spec.quantization_config) == (base, {"quant_method": "gguf", "mix": mix})
    assert model.spec.assumed


def test_siblings_have_the_published_number_of_elements() -> None:
    # the widest difference: 2,364 clipping bounds of Gemma 4's tower that files store and nobody counts
    compared = 0
    for name, row in siblings().items():
        model = load_model(name)
        assert model.base == row.base in bundled_names() or row.base in siblings()
        assert row.base in model.notes[0]
        if row.published is None:
            assert model.spec.assumed == (f"the shape of {row.base}",)
            continue
        compared += 1
        assert not model.spec.assumed
        assert abs(row.published / model.parameters - 1) < 1e-4, name
    assert compared >= 15


def test_a_sibling_differs_where_its_row_says() -> None:
    # 33,360,000 published: 12 layers of 384 instead of 6, 1,774,464 more each
    six, twelve = (load_model(f"sentence-transformers/all-MiniLM-L{count}-v2") for count in (6, 12))
    assert twelve.parameters - six.parameters == 6 * 1_774_464
    long = load_model("lmsys/vicuna-7b-v1.5-16k")
    assert long.longest_request == 16_384
    export = load_model("someone/Qwen3-Reranker-8B-GPTQ-Int4")
    assert export.base == "Qwen/Qwen3-Reranker-8B"


def test_most_tags_rest_on_a_bundled_model() -> None:
    tags = ollama_tags().values()
    assert sum(tag.base in bundled_names() for tag in tags) >= 0.97 * len(tags)


def test_the_most_used_names_plan() -> None:
    names = (Path(__file__).parent / "data" / "ranked_names.txt").read_text().split()
    found = [name for name in names if resolve_bundled(name) or resolve_name(name)]
    assert len(names) == 700
    assert len(found) >= 525


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("someone/Qwen3-8B-Tuned-4bit", "Qwen/Qwen3-8B"),
        ("llama3.1-8b-instruct-tuned", "meta-llama/Llama-3.1-8B-Instruct"),
        ("gemma-3-27b-it-tuned-4bit", "google/gemma-3-27b-it"),
    ],
)
def test_the_nearest_is_nearest_by_base_name(name: str, near: str) -> None:
    assert resolve_name(name) is None
    assert near in nearest_to(name)


def test_a_last_part_of_several_makers_is_a_question() -> None:
    with pytest.raises(SourceError, match="several bundled models"):
        load_model("Qwen3-14B-AWQ")


def test_no_two_bundled_names_differ_in_case_alone() -> None:
    names = [name.lower() for name in bundled_names()]
    assert len(names) == len(set(names))
