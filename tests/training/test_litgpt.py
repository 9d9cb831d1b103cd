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
from planner.training.states.states import states
from planner.training.states.trainable import inventory
from planner.training.step.step import step_memory
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
    # litgpt has two matrices where the checkpoint has one
    "gemma": ("gemma", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "gemma-2": ("gemma2", {"tie_word_embeddings": True}),
}
_SAME = {"phi-3": "llama"}  # to litgpt
_TARGETS = {"few": ("query", "value"), "all": ("query", "key", "value", "projection", "mlp", "head")}
_CASES = [
    (twin, *row[1:])
    for twin in _TWINS
    for row in _DATA["steps"]
    if row[0] == _SAME.get(twin, twin)
]  # fmt: skip


@pytest.mark.parametrize(("name", "vocabulary", "batch", "seq", "targets", "dropout", "kept", "peak"), _CASES)
def test_step(
    name: str, vocabulary: int, batch: int, seq: int, targets: str, dropout: float, kept: int, peak: int
) -> None:
    """What is left: LayerNorm's statistics, 16 bit on the CPU; and, in the layers, one tensor of their backward."""
    recipe = resolve(
        Recipe(
            method="full" if targets == "none" else "lora", framework="litgpt", lora_rank=4, lora_dropout=dropout,
            lora_target_modules=_TARGETS.get(targets, ()), per_device_train_batch_size=batch, max_seq_length=seq,
        )
    )  # fmt: skip
    model_type, changes = _TWINS[name]
    model = planned(model_type, {**changes, "vocab_size": vocabulary, "max_position_embeddings": 1024})
    step = step_memory(model, inventory(model, recipe), recipe, exact_sizes=True)
    assert step.forward_end_bytes == pytest.approx(kept, rel=0.003)
    assert step.peak().activation_bytes == pytest.approx(peak, rel=0.003 if vocabulary > 64 else 0.01)


def _qlora(name: str) -> tuple[int, int, int]:
    """(frozen, trained elements, optimizer's bytes) of the small model under QLoRA."""
    model_type, changes = _TWINS[name]
    recipe = resolve(Recipe(method="qlora", framework="litgpt", lora_rank=4))
    found = states(inventory(planned(model_type, changes), recipe), recipe)
    return found.frozen_numel, found.trained_numel, found.optimizer_bytes


def test_quantised_models_have_another_embedding() -> None:
    """lora.py puts bitsandbytes' StableEmbedding in place of the first, which `main` still names, and freezes neither.

    640 x 128 elements in one more matrix than the model has, with a gradient, and without states: the optimizer was
    made before. Trained by it: A of 4 x 128 for two of the projections, B of 128 x 4 and 128 x 4, in 3 layers.
    """
    embedding, adapters = 640 * 128, 3 * (2 * 4 * 128 + 4 * 128 + 4 * 128)
    frozen, trained, optimizer = _qlora("llama")
    layers = 3 * (4 * 128 * 128 + 3 * 128 * 352 + 2 * 128) + 128
    assert frozen == layers + 2 * embedding
    assert trained == adapters + embedding
    assert optimizer == adapters * 2 * 2
