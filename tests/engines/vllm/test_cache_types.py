"""Which type a cache has, and what of it stays plain; bytes per token by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner import Deployment, ServingPlan, find_gpu, load_model, plan_serving
from planner.model.load import model_from_config
from planner.model.model import Model


def model(**changes: object) -> Model:
    raw: dict[str, Any] = {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 2048,
        "vocab_size": 32000, "max_position_embeddings": 8192, "dtype": "bfloat16", "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False,
    }  # fmt: skip
    return model_from_config(raw | changes, name="m", origin="test")


def plan(found: Model, version: str, **more: object) -> ServingPlan:
    options = {"gpu": find_gpu("B200"), "engine_version": version} | more
    return plan_serving(found, Deployment(**options))  # type: ignore[arg-type]


SCHEME = {"dynamic": False, "num_bits": 8, "type": "float"}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    },
}


@pytest.mark.parametrize(
    ("config", "version", "asked", "expected"),
    [
        (MODELOPT | {"kv_cache_scheme": SCHEME}, "0.19.0", "auto", 2048),
        (MODELOPT | {"kv_cache_quant_algo": "FP8"}, "0.19.0", "auto", 2048),
        (COMPRESSED | {"kv_cache_scheme": SCHEME}, "0.19.0", "auto", 2048),
        (MODELOPT, "0.19.0", "auto", 4096),
        (MODELOPT | {"kv_cache_scheme": SCHEME}, "0.19.0", "bfloat16", 4096),
        # read from the checkpoint since 0.14
        (MODELOPT | {"kv_cache_scheme": SCHEME}, "0.12.0", "auto", 4096),
    ],
)
def test_the_checkpoints_own_cache_type(config: dict[str, object], version: str, asked: str, expected: int) -> None:
    """2 x 2 heads x 128 x 4 layers, of 1 or 2 bytes."""
    found = plan(model(quantization_config=config), version, kv_cache_dtype=asked)
    assert found.sequence.bytes_per_token == expected


@pytest.mark.parametrize(
    ("layers", "name", "expected"),
    [
        # two layers at either end in 16 bit: 2 x 8 x 128 x 2 B; between them 128 + 64 + 4 B a head
        (32, "turboquant_k8v4", 28 * 8 * 196 + 4 * 2 * 8 * 128 * 2),
        (48, "turboquant_k8v4", 44 * 8 * 196 + 4 * 2 * 8 * 128 * 2),
        (48, "turboquant_4bit_nc", 44 * 8 * 134 + 4 * 2 * 8 * 128 * 2),
        # half of the layers at most
        (3, "turboquant_k8v4", 8 * 196 + 2 * 2 * 8 * 128 * 2),
    ],
)
def test_turboquant_keeps_both_ends_plain(layers: int, name: str, expected: int) -> None:
    found = model(num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=8)
    planned = plan(found, "0.20.0", kv_cache_dtype=name, gpu=find_gpu("H100"))
    assert planned.sequence.bytes_per_token == expected
    # each stage of a pipeline keeps the ends that it has
    if layers == 32:
        halves = plan(found, "0.20.0", kv_cache_dtype=name, gpu=find_gpu("H100"), pipeline_parallel_size=2)
        assert 2 * halves.sequence.bytes_per_token == expected


def test_turboquant_ratios_as_published() -> None:
    """Of 48 layers: 2.30, 3.09, 3.39 and 3.76 times smaller than 16 bit."""
    found = model(num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=8)
    plain = plan(found, "0.24.0", gpu=find_gpu("H100")).sequence.bytes_per_token
    names = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
    ratios = [
        plain / plan(found, "0.24.0", kv_cache_dtype=name, gpu=find_gpu("H100")).sequence.bytes_per_token
        for name in names
    ]
    assert [round(ratio, 2) for ratio in ratios] == [2.30, 3.09, 3.39, 3.76]


@pytest.mark.parametrize(
    ("name", "gpu", "version", "asked", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "H200", "0.19.0", "auto", 61 * (1152 + 132)),
        ("deepseek-ai/DeepSeek-V3.2", "H200", "0.19.0", "fp8", 61 * (656 + 132)),
        ("deepseek-ai/DeepSeek-V3.2", "B200", "0.19.0", "fp8", 61 * (576 + 132)),
        # 21 of GLM-5.2's 78 layers have an indexer; before 0.26 every layer had its cache
        ("zai-org/GLM-5.2", "H200", "0.24.0", "fp8", 78 * (656 + 132)),
        ("zai-org/GLM-5.2", "H200", "0.26.0", "fp8", 78 * 656 + 21 * 132),
    ],
)
def test_sparse_attention(name: str, gpu: str, version: str, asked: str, expected: int) -> None:
    found = plan(load_model(name), version, gpu=find_gpu(gpu), tensor_parallel_size=8, kv_cache_dtype=asked)
    assert found.sequence.bytes_per_token == expected


@pytest.mark.parametrize(
    ("name", "length", "asked", "gib"),
    [
        # experts' 2,048 x 8 x 2 x 7,168 x 2 B = 0.4375; 40 x length x 132 B; 5 x length x 1,152 B
        ("deepseek-ai/DeepSeek-V3.2", 16_384, "auto", 2.313),
        ("deepseek-ai/DeepSeek-V3.2", 163_840, "auto", 2.313 - 0.4375 + 40 * 163_840 * 132 / 2**30),
        ("deepseek-ai/DeepSeek-V3.2", 163_840, "fp8", 2.313 - 0.4375 + 5 * 163_840 * 1152 / 2**30),
    ],
)
def test_workspace_of_sparse_attention(name: str, length: int, asked: str, gib: float) -> None:
    found = plan(load_model(name), "0.19.0", gpu=find_gpu("H200"), tensor_parallel_size=8, kv_cache_dtype=asked,
                 max_num_batched_tokens=2048, max_model_len=length)  # fmt: skip
    peak = found.budget.component("activation_peak")
    assert peak is not None and abs(peak.best / 2**30 - gib) <= 0.005


def test_workspace_of_glm() -> None:
    """40 x 202,752 x 132 B = 1.00 GiB at the model's own length, more than the experts ask for."""
    found = load_model("zai-org/GLM-5")
    peaks = [
        plan(found, "0.26.0", gpu=find_gpu("B200"), tensor_parallel_size=8, max_num_batched_tokens=2048,
             max_model_len=length).budget.component("activation_peak")
        for length in (100_000, 200_000)
    ]  # fmt: skip
    assert peaks[0] is not None and peaks[1] is not None
    assert peaks[1].best - peaks[0].best == 40 * 100_000 * 132
