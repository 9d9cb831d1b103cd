"""DeepSpeed's engines: bytes by hand for Qwen2.5-7B (7,615,616,512 parameters) and others on 8 cards."""

from __future__ import annotations

import pytest

from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe
from planner.units import GIB

_P = 7_615_616_512


def plan(name: str, **options: object) -> TrainingPlan:
    values: dict[str, object] = {"method": "full", "dtype": "bfloat16", "num_gpus": 8, "gradient_checkpointing": True}
    return plan_training(load_model(name), Recipe(**(values | options)), find_gpu("A100-80GB"))  # type: ignore[arg-type]


def test_stage_3_holds_sixteen_bytes_a_parameter() -> None:
    held = plan("Qwen/Qwen2.5-7B", sharding="zero3").sharded
    assert held.weights + held.gradients + held.optimizer == pytest.approx(_P * 16 // 8, rel=2e-3)
    assert held.step_temporary == 6 * _P // 8
    assert held.gathered <= 2_000_000_000 + 2 * 2 * 152_064 * 3584


def test_stage_2_at_its_worst_moment() -> None:
    """2P + 12P/8, and at the step the gradients 2, flattened 2 and in fp32 4 a parameter of the share."""
    held = plan("Qwen/Qwen2.5-7B", sharding="zero2").sharded
    assert held.weights + held.optimizer == 26_654_657_792
    assert held.weights + held.optimizer + held.gradients + held.step_temporary == 34_270_274_304


@pytest.mark.parametrize("sharding", ["zero1", "zero2"])
def test_another_model_and_stage_1(sharding: str) -> None:
    """Llama-3.1-8B, 8,030,261,248 parameters: 2P whole, 4 + 8 of an eighth."""
    held = plan("meta-llama/Llama-3.1-8B", sharding=sharding).sharded
    assert held.weights + held.optimizer == 2 * 8_030_261_248 + 12 * 8_030_261_248 // 8


def test_buckets_as_a_file_has_them() -> None:
    assert plan("Qwen/Qwen2.5-7B", sharding="zero2", reduce_bucket_size=500_000_000).sharded.buckets == 1_000_000_000
    both = plan("Qwen/Qwen2.5-7B", sharding="zero2", reduce_bucket_size=500_000_000, overlap_comm=True)
    assert both.sharded.buckets == 2_000_000_000
    assert plan("Qwen/Qwen2.5-7B", sharding="zero2").sharded.buckets == 2 * 3584 * 3584


def test_pinned_host_memory_comes_in_powers_of_two() -> None:
    """A rank's fp32 copy and gradients 3.55 -> 4 GiB each, staging 1.77 -> 2, Adam's states 7.09 as they are."""
    offloaded = plan("Qwen/Qwen2.5-7B", sharding="zero2", offload_optimizer=True)
    assert offloaded.host_bytes / GIB == pytest.approx(4 + 4 + 2 + 7.093, abs=0.01)
    plain = plan("Qwen/Qwen2.5-7B", sharding="zero2", offload_optimizer=True, pin_memory=False)
    assert plain.host_bytes == 18 * _P // 8


def test_ppo_trains_its_critic_like_the_policy() -> None:
    """Reference, reward and critic 2P each on every card, and the critic's 14P/8."""
    model = load_model("meta-llama/Meta-Llama-3-8B")
    recipe = Recipe(method="full", objective="ppo", num_gpus=8, sharding="zero2", generation_share=0.0)
    parts = {part.name: part.best for part in plan_training(model, recipe, find_gpu("H200")).components}
    assert parts["other_models"] / GIB == pytest.approx(57.96, abs=0.01)


def test_ppo_of_another_model() -> None:
    recipe = Recipe(method="full", objective="ppo", num_gpus=8, sharding="zero2", generation_share=0.0)
    parts = {p.name: p.best for p in plan_training(load_model("Qwen/Qwen2.5-7B"), recipe, find_gpu("H200")).components}
    assert parts["other_models"] == 59_021_027_968
