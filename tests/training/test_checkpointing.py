"""Checkpointing never costs memory, but where nothing but its own inputs would be kept (hardening H9)."""

from __future__ import annotations

import pytest

from planner.errors import PlannerError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.model.names.bundled import bundled_names
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe

_TOWERS_ALONE = "are modules of the towers alone"


def plan(model: str, checkpointing: bool) -> TrainingPlan:
    recipe = Recipe(method="lora", gradient_checkpointing=checkpointing, num_gpus=8, sharding="fsdp")
    return plan_training(load_model(model), recipe, find_gpu("B200"))


def test_checkpointing_is_never_above_none() -> None:
    compared = 0
    for name in [*list(bundled_names())[::70], "moonshotai/Kimi-K2.5", "mistralai/Mistral-Large-3-675B-Instruct-2512"]:
        try:
            on, off = plan(name, True), plan(name, False)
        except PlannerError:
            continue
        compared += 1
        said = any(_TOWERS_ALONE in note for note in on.notes)
        assert on.allocated_bytes <= off.allocated_bytes or said, name
    assert compared > 8


@pytest.mark.parametrize("targets", [("q_a_proj", "kv_b_proj"), ("all-linear",)])
def test_targets_of_the_language_model_are_said_to_be_none_of_the_towers(targets: tuple[str, ...]) -> None:
    recipe = Recipe(method="lora", lora_target_modules=targets, num_gpus=8, sharding="fsdp")
    found = plan_training(load_model("moonshotai/Kimi-K2.5"), recipe, find_gpu("B200"))
    assert not any(_TOWERS_ALONE in note for note in found.notes)
