"""What vLLM prints for weights beyond, and short of, the bytes of the files."""

from __future__ import annotations

import pytest

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import plan_serving
from planner.hardware.gpus import find_gpu
from planner.memory.allocator import occupancy
from planner.memory.format_table import weight_format
from planner.memory.weights import StageWeights
from planner.model.load import load_model
from planner.units import GIB, MIB


def weights(name: str, version: str, **inputs: object) -> StageWeights:
    values = {"gpu": find_gpu("A100 40GB"), "engine_version": version, "dtype": "float16"} | inputs
    return plan_serving(load_model(name), Deployment(**values)).budget.weights  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "version", "printed"),
    [
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "0.13.0", 18.1425),
        ("meta-llama/Llama-3.1-8B-Instruct", "0.5.4", 5.3748),
        ("Qwen/Qwen3-8B", "0.19.0", 5.71),
    ],
)
def test_awq_values_scales_and_zero_points_round_one_by_one(name: str, version: str, printed: float) -> None:
    found = weights(name, version, quantization="awq", max_model_len=4096)
    assert found.total_bytes / GIB == pytest.approx(printed, rel=5e-4)


def test_one_awq_matrix_in_the_allocator() -> None:
    """Gate and up of Qwen2.5-32B, 5,120 x 55,296 in groups of 128.

    Values 135 MiB in a segment of 136, whose last MiB is not cut off; scales of 40 x 55,296 x 2 B and zero points of
    40 x 55,296 / 2 B share one of 20.
    """
    values, scales, index, zeros = weight_format("awq_4bit").pieces((55_296, 5_120))
    assert (values, scales, index, zeros) == (135 * MIB, 4_423_680, 0, 1_105_920)
    assert occupancy((values, scales, zeros)).allocated_bytes == 136 * MIB + 4_423_680 + 1_105_920


def test_a_tower_is_loaded_up_to_the_layer_that_is_read() -> None:
    """LLaVA-1.5 in AWQ on 0.10.2 printed 4.253 GiB; with CLIP's last layer it would be 24 MiB more."""
    found = weights("llava-hf/llava-1.5-7b-hf", "0.10.2", quantization="awq", max_model_len=4096)
    assert found.total_bytes / GIB == pytest.approx(4.253, rel=5e-4)


def test_the_last_layer_of_clip_by_hand() -> None:
    """LLaVA-1.6: 4 x (1,024^2 + 1,024) + 2 x 1,024 x 4,096 + 4,096 + 1,024 + two norms, and the norm behind it."""
    name = "llava-hf/llava-v1.6-vicuna-7b-hf"
    layer = 4 * (1024**2 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024
    assert load_model(name).parameters - weights(name, "0.19.0").numel == layer + 2 * 1024


def test_towers_that_are_read_to_the_end_are_whole() -> None:
    model = load_model("llava-hf/llava-onevision-qwen2-7b-ov-hf")
    assert [stack.unread_layers for stack in model.spec.stacks] == [0]
