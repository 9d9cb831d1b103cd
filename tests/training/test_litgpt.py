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

from planner.model.load import load_model
from planner.training.blocks.block import Block, Kernels, Weight
from planner.training.blocks.linear import linear
from planner.training.plan import plan_training
from planner.training.recipe import Recipe, resolve
from planner.training.states.states import states
from planner.training.states.trainable import inventory
from planner.training.step.step import step_memory
from planner.training.tape.tape import Tape
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


def _llama(**options: Any) -> Any:
    return plan_training(
        load_model("meta-llama/Llama-2-7b-hf"),
        Recipe(framework="litgpt", method="qlora", dtype="bfloat16", per_device_train_batch_size=2, max_seq_length=512,
               lora_target_modules=("q_proj", "v_proj"), lora_dropout=0.05, **options),
        gpu_memory_bytes=1 << 40, replays=False,
    )  # fmt: skip


def test_the_graph_of_the_step_before_keeps_what_nodes_have_as_attributes() -> None:
    """bitsandbytes 0.42 kept every 4-bit layer's input in its node: 2 B x (h for q, k and v, h for o, h for gate and
    up, f for down) a token and layer, once for this step, and in forward once more for the step before, whose graph the
    loop's loss still holds; the head's input too. The lowest layer's input to q, k and v wants no gradient."""
    tokens, layers, hidden, wide = 1024, 32, 4096, 11_008
    old, new = _llama(bitsandbytes_version="0.42.0"), _llama(bitsandbytes_version="0.44.1", framework_version="0.4")
    kept = tokens * (layers * 2 * (3 * hidden + wide) + 2 * hidden)
    by_name = {phase.name: phase.allocated_bytes for phase in old.phases}
    less = {phase.name: phase.allocated_bytes for phase in new.phases}
    assert by_name["loss forward"] - less["loss forward"] == pytest.approx(2 * kept, rel=0.02)
    assert by_name["loss backward"] - less["loss backward"] == pytest.approx(kept, rel=0.02)


def test_releases_that_take_the_longest_sample_first_have_nothing_before_it() -> None:
    old = _llama(bitsandbytes_version="0.41.1", framework_version="0.1")
    later = _llama(bitsandbytes_version="0.41.1", framework_version="0.4")
    assert old.phases[1].allocated_bytes < later.phases[1].allocated_bytes - (1 << 30)


def test_matrices_are_unpacked_in_float16_and_converted() -> None:
    """Lightning quantises `.half()`: a product in bfloat16 has the matrix twice for a moment, one in float16 once."""
    for half, copies in ((False, 2), (True, 1)):
        tape = Tape(half=half)
        weight = Weight(out_features=64, in_features=32, width=2, trainable=False, storage="dequantised")
        block = Block(
            tape=tape, batch=1, seq=1, hidden_size=32, weights={"o.weight": weight}, kernels=Kernels(unpacking="half")
        )
        x = tape.input(32, 2, needs_grad=False)
        start = tape.mark()
        out = linear(block, "o", x)
        assert tape.peak - start == max(copies * 64 * 32 * 2, 64 * 32 * 2 + 64 * 2)
        del out, x
