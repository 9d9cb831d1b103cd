"""Separate drafts: small models and EAGLE heads beside a target, in vLLM and SGLang. Bytes worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import find_engine, find_gpu, load_model
from planner.contract.plan import ServingPlan
from planner.units import GIB, MIB

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"
# EAGLE-3 for Llama-3.1-8B: three states and two streams into one layer of 4,096, and 32,000 rows of its own
HEAD = 3 * 4096 * 4096 + 8192 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 4 * 4096 + 32_000 * 4096


def plan(engine: str, model: str, **more: object) -> ServingPlan:
    found = find_engine(engine)
    options = {"gpu": find_gpu("H100"), **more}
    return found.plan(load_model(model), found.Deployment(**options))


def vllm(model: str, draft: dict[str, object] | None, **more: object) -> ServingPlan:
    config = json.dumps({**draft, "num_speculative_tokens": 3}) if draft else None
    options = {"engine_version": "0.19.0", "max_model_len": 16_384, "speculative_config": config}
    return plan("vllm", model, **options | more)


def weights(found: ServingPlan) -> int:
    part = next(part for part in found.devices[0].components if part.name == "weights")
    return part.best


@pytest.mark.parametrize("name", ["yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "somebody/unheard-of"])
def test_an_eagle_head_that_is_not_at_hand_has_the_targets_sizes(name: str) -> None:
    alone, drafted = vllm(LLAMA, None), vllm(LLAMA, {"method": "eagle3", "model": name})
    assert abs(weights(drafted) - weights(alone) - 2 * HEAD) < 8 * MIB  # a rotary table, rounding of segments
    # 33 layers of 8 heads of 128: a start of Llama-3.1-8B with EAGLE printed 51.63 GiB and 410,128 tokens
    assert drafted.cache.bytes_per_token == 33 * 2 * 8 * 128 * 2
    assert abs(51.63 * GIB / 410_128 / drafted.cache.bytes_per_token - 1) < 2e-4
    part = next(part for part in drafted.devices[0].components if part.name == "weights")
    assert part.evidence == "assumed"
    assert any(name in note and "assumed" in note for note in drafted.notes)


def test_a_head_in_a_folder_has_its_own_sizes(tmp_path: Path) -> None:
    head = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 1,
        "vocab_size": 128_256,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(head))
    alone, drafted = vllm(LLAMA, None), vllm(LLAMA, {"method": "eagle", "model": str(tmp_path)})
    # EAGLE: embedding and output matrix are the target's
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 8192 + 2 * 4096 + 2 * 4096 * 4096
    assert abs(weights(drafted) - weights(alone) - 2 * layer) < 8 * MIB
    assert "assumed" not in {part.evidence for part in drafted.devices[0].components if part.name == "weights"}


def test_a_small_model_has_weights_and_layers_of_its_own() -> None:
    draft = {"model": "Qwen/Qwen3-0.6B", "method": "draft_model"}
    alone, drafted = vllm(QWEN, None), vllm(QWEN, draft)
    assert abs(weights(drafted) - weights(alone) - 2 * load_model("Qwen/Qwen3-0.6B").parameters) < 16 * MIB
    # 64 and 28 layers of 8 heads of 128
    assert drafted.cache.bytes_per_token == (64 + 28) * 2 * 8 * 128 * 2
    assert "Qwen/Qwen3-0.6B" in " ".join(find_engine("vllm").command(drafted))
    assert drafted.verdict == "fits"


def test_half_of_the_draft_at_two_gpus() -> None:
    draft = {"model": "Qwen/Qwen3-8B", "method": "draft_model"}
    alone, drafted = (vllm(QWEN, one, tensor_parallel_size=2) for one in (None, draft))
    added = weights(drafted) - weights(alone)
    assert abs(added - load_model("Qwen/Qwen3-8B").parameters) < 16 * MIB


@pytest.mark.parametrize("draft", [{"method": "medusa", "model": "Qwen/Qwen3-0.6B"}, {"model": "some/where"}])
def test_a_draft_that_nothing_describes_is_unknown(draft: dict[str, object]) -> None:
    found = vllm(LLAMA, draft)
    assert found.verdict == "unknown"
    assert "draft model" in found.unknown[0]


def test_proposals_from_the_text_cost_nothing() -> None:
    alone, drafted = vllm(LLAMA, None), vllm(LLAMA, {"method": "ngram"})
    assert weights(alone) == weights(drafted)
    assert drafted.verdict == "fits"


def test_sglang_counts_a_head_and_a_small_model() -> None:
    head = plan("sglang", LLAMA, speculative_algorithm="EAGLE3", speculative_draft_model_path="lmsys/unheard-of-EAGLE3")
    part = next(part for part in head.devices[0].components if part.name == "draft_weights")
    assert abs(part.low - 2 * HEAD) < 8 * MIB
    assert abs(part.best - 2 * (HEAD + 128_256 * 4096)) < 8 * MIB  # before the target's embedding is taken
    small = plan("sglang", QWEN, speculative_algorithm="STANDALONE", speculative_draft_model_path="Qwen/Qwen3-0.6B")
    part = next(part for part in small.devices[0].components if part.name == "draft_weights")
    assert abs(part.best - 2 * load_model("Qwen/Qwen3-0.6B").parameters) < 16 * MIB
    assert "unknown" not in (head.verdict, small.verdict)
