"""Which type vLLM computes in: expected values are vllm/config.py 0.8.5 and config/model.py 0.11.0, read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from planner import find_gpu, load_model
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.model.dtype import resolve_dtype
from planner.errors import UsageError
from planner.model.sources.held_types import plain_type_held
from planner.model.tensors import tensors


def chosen(model: str, gpu: str, version: str, **given: object) -> str:
    return resolve_dtype(load_model(model), Deployment(gpu=find_gpu(gpu), engine_version=version, **given), [])


@pytest.mark.parametrize(
    ("model", "gpu", "version", "given", "expected"),
    [
        # bfloat16 checkpoints: as stored where the card has it, else the card's first
        ("Qwen/Qwen3-0.6B", "4090", "0.33.0", {}, "bfloat16"),
        ("Qwen/Qwen3-0.6B", "T4", "0.33.0", {}, "float16"),
        ("Qwen/Qwen3-0.6B", "V100-32GB", "0.10.0", {}, "float16"),
        ("Qwen/Qwen3-Embedding-0.6B", "4090", "0.33.0", {"runner": "pooling"}, "bfloat16"),
        # float32: float16 for everyone to 0.9.0, then the platform's first, and float16 for what pools
        ("BAAI/bge-m3", "4090", "0.8.5", {}, "float16"),
        ("BAAI/bge-m3", "4090", "0.33.0", {}, "float16"),
        ("BAAI/bge-m3", "T4", "0.33.0", {}, "float16"),
        ("allenai/OLMo-1B-hf", "4090", "0.8.5", {}, "float16"),
        ("allenai/OLMo-1B-hf", "4090", "0.9.1", {}, "bfloat16"),
        ("allenai/OLMo-1B-hf", "T4", "0.9.1", {}, "float16"),
        ("allenai/OLMo-1B-hf", "4090", "0.33.0", {"convert": "embed"}, "float16"),
        # models that are unstable in float16 fall through to float32 on cards without bfloat16
        ("google/gemma-3-4b-it", "T4", "0.33.0", {}, "float32"),
        ("google/gemma-2-9b-it", "V100-32GB", "0.11.0", {}, "float32"),
        ("google/gemma-3-4b-it", "L4", "0.33.0", {}, "bfloat16"),
        ("google/gemma-3-4b-it", "T4", "0.8.5", {}, "float16"),
        # asked for
        ("google/gemma-2-9b-it", "4090", "0.8.5", {"dtype": "half"}, "float16"),
        ("Qwen/Qwen3-0.6B", "T4", "0.33.0", {"dtype": "float"}, "float32"),
    ],
)
def test_auto_depends_on_checkpoint_card_and_release(
    model: str, gpu: str, version: str, given: dict[str, object], expected: str
) -> None:
    assert chosen(model, gpu, version, **given) == expected


@pytest.mark.parametrize(
    ("model", "gpu", "dtype", "words"),
    [
        ("google/gemma-3-4b-it", "4090", "half", "refuses it for gemma3"),
        ("google/gemma-2-9b-it", "T4", "float16", "refuses it for gemma2"),
        ("Qwen/Qwen3-0.6B", "T4", "bfloat16", "T4 has no bfloat16"),
        ("Qwen/Qwen3-0.6B", "4090", "banana", "expected auto, bfloat16"),
    ],
)
def test_what_vllm_refuses_is_refused(model: str, gpu: str, dtype: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        chosen(model, gpu, "0.33.0", dtype=dtype)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, "float16"), (torch.float32, "bfloat16")])
def test_without_a_stated_type_the_headers_decide(tmp_path: Path, dtype: torch.dtype, expected: str) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 200,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = tensors(load_model(tmp_path).spec)
    save_file({one.name: torch.zeros(one.shape, dtype=dtype) for one in made}, tmp_path / "model.safetensors")
    assert plain_type_held(load_model(tmp_path).stored) == str(dtype).removeprefix("torch.")
    assert chosen(str(tmp_path), "4090", "0.33.0") == expected
    # to 0.9.0 the headers were not asked: taken for float32, run in float16
    assert chosen(str(tmp_path), "4090", "0.8.5") == "float16"
