"""litgpt's fine-tuning step, against what litgpt 0.5.13 was measured to do on the CPU.

The suite has no litgpt, so the figures are kept in data/litgpt.json; measure_litgpt.py makes them, for the same
architectures under litgpt's own names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from planner.training.recipe import Recipe, resolve
from planner.training.step import step_memory
from planner.training.trainable import inventory
from tests.training.small_models import planned

_DATA = json.loads((Path(__file__).parent / "data" / "litgpt.json").read_text("utf-8"))
_ALL = {"num_key_value_heads": 8}
# What each is to transformers.
_TWINS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _ALL),
    "llama-gqa": ("llama", {}),
    "mistral": ("mistral", {"sliding_window": 64}),
    "phi-3": ("phi3", _ALL),
    "falcon": ("falcon", {}),
    "pythia": ("gpt_neox", {}),
    "stablelm": ("stablelm", _ALL),
    "gemma": ("gemma", {"num_key_value_heads": 1}),
    "gemma-2": ("gemma2", {}),
}
_SAME = {"phi-3": "llama"}  # to litgpt
_TARGETS = {"few": ("query", "value"), "all": ("query", "key", "value", "projection", "mlp", "head")}
_CASES = [
    (twin, *row[1:])
    for twin in _TWINS
    for row in _DATA["steps"]
    if row[0] == _SAME.get(twin, twin)
]  # fmt: skip


@pytest.mark.parametrize(("name", "batch", "targets", "dropout", "kept", "peak"), _CASES)
def test_step(name: str, batch: int, targets: str, dropout: float, kept: int, peak: int) -> None:
    recipe = resolve(
        Recipe(
            method="full" if targets == "none" else "lora", framework="litgpt", lora_rank=4, lora_dropout=dropout,
            lora_target_modules=_TARGETS.get(targets, ()), per_device_train_batch_size=batch, max_seq_length=160,
        )
    )  # fmt: skip
    model = planned(*_TWINS[name])
    step = step_memory(model, inventory(model, recipe), recipe, exact_sizes=True)
    assert step.forward_end_bytes == pytest.approx(kept, rel=0.003)
    assert step.peak().activation_bytes == pytest.approx(peak, rel=0.003)
