"""Impossible recipes are refused by naming the option; possible but doubtful ones are noted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.contract.workload import Accept
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.training.largest import largest_that_fits
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe, frameworks, resolve
from planner.units import GIB

_MODEL = load_model("Qwen/Qwen2.5-0.5B")
_GPU = find_gpu("4090")


def plan(**options: object) -> TrainingPlan:
    return plan_training(_MODEL, Recipe(**options), _GPU)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"framework": "megatron", "method": "full", "optim": "adamw_bnb_8bit"}, "optim"),
        ({"lora_target_modules": ("nothing_proj",)}, "lora_target_modules"),
        ({"lora_target_modules": ("(",)}, "lora_target_modules"),
        ({"modules_to_save": ("nowhere",)}, "modules_to_save"),
        ({"sharding": "zero3"}, "sharding"),
        ({"method": "full", "base_quantization": "nf4"}, "base_quantization"),
        ({"method": "qlora", "base_quantization": "none"}, "base_quantization"),
        ({"method": "loar"}, "method"),
        ({"optim": "adamw_torhc"}, "optim"),
        ({"loss": "magic"}, "loss"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size"),
        ({"max_seq_length": -1}, "max_seq_length"),
        ({"lora_rank": 0}, "lora_rank"),
        ({"lora_dropout": 1.0}, "lora_dropout"),
        ({"num_gpus": 3, "tensor_parallel_size": 2}, "num_gpus"),
        ({"method": "freeze", "freeze_layers": 999}, "freeze_layers"),
        ({"transformers_version": "new"}, "transformers_version"),
        ({"generation_share": 1.5}, "generation_share"),
    ],
)
def test_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**options)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_a_sequence_beyond_the_positions_is_noted() -> None:
    found = plan(max_seq_length=40_000, gradient_checkpointing=True)
    assert any("longer than the model's 32,768 positions" in note for note in found.notes)


def test_a_misspelt_option_names_its_neighbour() -> None:
    with pytest.raises(UsageError, match="did you mean adamw_torch"):
        plan(optim="adamw_torhc")


@pytest.mark.parametrize("framework", frameworks())
def test_every_framework_plans_with_its_defaults(framework: str) -> None:
    found = plan(framework=framework, gradient_checkpointing=True)
    assert found.allocated_bytes > 0
    assert resolve(Recipe(framework=framework)).optim is not None


@pytest.mark.parametrize("objective", ["sft", "dpo", "kto", "orpo", "reward", "ppo", "grpo"])
def test_objectives(objective: str) -> None:
    """A full DPO keeps a second model: 494,032,768 parameters x 2 B more than ORPO, which needs none."""
    assert plan(method="full", objective=objective).allocated_bytes > 0
    if objective == "dpo":
        with_reference = plan(method="full", objective="dpo").allocated_bytes
        without = plan(method="full", objective="orpo").allocated_bytes
        assert with_reference - without == 494_032_768 * 2


def test_a_reward_model_has_no_logits() -> None:
    reward = plan(method="full", objective="reward", gradient_checkpointing=True).step.logits_bytes
    pairs = plan(method="full", objective="orpo", gradient_checkpointing=True).step.logits_bytes
    # forward: 2 sequences x 2048 tokens x 151,936 entries x (2 + 4 + 4) B
    assert pairs - reward >= 2 * 2048 * 151_936 * 10 - 58_687_488


def test_a_checkpoint_that_is_quantised_keeps_its_format() -> None:
    """Qwen2.5-7B-Instruct-AWQ: its files hold 5.58e9 B, the bf16 model 15.2e9."""
    model = load_model("Qwen/Qwen2.5-7B-Instruct-AWQ")
    found = plan_training(model, Recipe(method="lora", gradient_checkpointing=True), _GPU)
    assert found.states.frozen_bytes == pytest.approx(5.58e9, rel=0.01)
    with pytest.raises(UsageError):
        plan_training(model, Recipe(method="full"), _GPU)


def test_other_names_of_a_framework() -> None:
    assert resolve(Recipe(framework="LLaMA-Factory")).framework == "llamafactory"


@pytest.mark.parametrize("accept", ["tight", "fits"])
@pytest.mark.parametrize(
    ("name", "memory"), [("per_device_train_batch_size", 8), ("max_seq_length", 6), ("lora_rank", 6)]
)
def test_one_more_than_the_largest_is_not_accepted(accept: Accept, name: str, memory: int) -> None:
    recipe = Recipe(method="lora", gradient_checkpointing=True, max_seq_length=1024)
    largest = largest_that_fits(_MODEL, recipe, _GPU, gpu_memory_bytes=memory * GIB, accept=accept)
    found = getattr(largest, name)

    def verdict(value: int) -> str:
        return plan_training(_MODEL, replace(recipe, **{name: value}), _GPU, gpu_memory_bytes=memory * GIB).verdict

    good = ("fits", "tight") if accept == "tight" else ("fits",)
    assert verdict(found) == largest.verdicts[name]
    assert verdict(found) in good and verdict(found + 1) not in good
    assert largest.num_gpus == 1
