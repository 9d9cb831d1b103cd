"""Fine-tunes under transformers 4, against what 4.57.6 and PEFT 0.18 were measured to do on the CPU.

The suite has transformers 5, so the figures are kept in data/transformers_4.json; measure_transformers_4.py makes them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from planner.errors import PlannerError
from planner.training.recipe import Recipe, resolve
from planner.training.states.states import states
from planner.training.states.trainable import inventory
from planner.training.step.step import step_memory
from tests.training.small_models import planned

_DATA = json.loads((Path(__file__).parent / "data" / "transformers_4.json").read_text("utf-8"))


@pytest.mark.parametrize(("model_type", "targets", "elements"), _DATA["adapters"])
def test_adapters(model_type: str, targets: str | list[str], elements: int | None) -> None:
    """Every matrix of every expert is a linear layer, and most routers are; what PEFT refuses is refused."""
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    recipe = resolve(Recipe(method="lora", lora_rank=4, lora_target_modules=names, transformers_version="4.57"))
    if elements is None:
        with pytest.raises(PlannerError):
            inventory(planned(model_type), recipe)
        return
    trained = states(inventory(planned(model_type), recipe), recipe).trained
    assert sum(tensor.numel * tensor.count for tensor in trained) == elements


@pytest.mark.parametrize(("model_type", "attention", "checkpointing", "dropout", "kept", "peak"), _DATA["steps"])
def test_step(
    model_type: str, attention: str, checkpointing: bool, dropout: float | None, kept: int, peak: int
) -> None:
    """One expert after the other, the rows of each kept; keys repeated by some models."""
    recipe = resolve(
        Recipe(
            method="full" if dropout is None else "lora", framework="trl", dtype="bfloat16", autocast="none",
            lora_rank=4, lora_dropout=dropout, lora_target_modules=("all-linear",), adapter_dtype="float32",
            per_device_train_batch_size=2, max_seq_length=96, gradient_checkpointing=checkpointing,
            attn_implementation=attention, padding=False, loss="hf", keep_outputs=True, transformers_version="4.57",
        )
    )  # fmt: skip
    model = planned(model_type)
    step = step_memory(model, inventory(model, recipe), recipe, exact_sizes=True)
    assert step.forward_end_bytes == pytest.approx(kept, rel=0.01)
    assert step.peak().activation_bytes == pytest.approx(peak, rel=0.02)
