"""T5, BART and Whisper: what a layer keeps, against the sums that saved tensors of transformers 5.24 gave (16 bit, no
dropout); LayerNorm's statistics are fp32 on the card, 4 bytes a norm more than a CPU's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.model.dropout import NO_DROPOUT
from planner.model.load import load_model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe, resolve
from planner.training.states.trainable import inventory
from planner.training.step.segments import Segments
from planner.units import GIB


def layers(name: str, source: int, target: int, attention: str) -> tuple[int, int]:
    """Bytes that one encoder layer and one decoder layer leave for backward."""
    model = load_model(name)
    model = replace(model, spec=replace(model.spec, dropout=NO_DROPOUT))
    recipe = resolve(
        Recipe(method="full", max_source_length=source, max_seq_length=target, attn_implementation=attention,
               gradient_checkpointing=False, use_cache=False, padding=False)
    )  # fmt: skip
    run = Segments(model, inventory(model, recipe), recipe, exact_sizes=True)
    return run.encoder_profiles(True)[1].forward_left, run.layer_profiles(True)[1].forward_left


def test_whisper_keeps_what_was_measured() -> None:
    h, f, nh, s, d = 1280, 5120, 20, 1500, 448  # a source is always 1,500 positions, whatever is asked
    encoder, decoder = layers("openai/whisper-large-v3", 77, d, "sdpa")
    assert encoder == (18 * h + 4 * f + 4 * nh + 8) * s + 8 * s
    assert decoder == (28 * h + 4 * f + 8 * nh + 12) * d + 4 * h * s + 12 * d


def test_bart_keeps_what_was_measured() -> None:
    h, f, nh, s, d = 1024, 4096, 16, 512, 128
    encoder, decoder = layers("facebook/bart-large", s, d, "sdpa")
    assert encoder == (16 * h + 4 * f + 4 * nh + 8) * s + 8 * s
    assert decoder == (24 * h + 4 * f + 8 * nh + 12) * d + 4 * h * s + 12 * d


def test_t5_with_eager_attention_keeps_what_was_measured() -> None:
    h, f, q, nh, s, d = 1024, 2816, 1024, 16, 512, 128
    encoder, decoder = layers("google/flan-t5-large", s, d, "eager")
    assert encoder == (20 * h + 8 * q + 14 * f + 2 * nh * s + 8) * s
    assert decoder == (30 * h + 12 * q + 14 * f + 2 * nh * (d + s) + 12) * d + 4 * q * s


def plan(name: str, **options: object) -> TrainingPlan:
    return plan_training(load_model(name), Recipe(**options), gpu_memory_bytes=80 * GIB, replays=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["openai/whisper-large-v3", "google/flan-t5-large", "facebook/bart-large"])
def test_both_stacks_are_trained_adapted_and_checkpointed(name: str) -> None:
    sizes: dict[str, object] = {"max_source_length": 512, "max_seq_length": 128, "per_device_train_batch_size": 4}
    full = plan(name, method="full", gradient_checkpointing=False, **sizes)
    assert full.states.trained_numel == load_model(name).parameters
    checkpointed = plan(name, method="full", gradient_checkpointing=True, **sizes)
    assert checkpointed.step.saved_bytes < full.step.saved_bytes / 4
    adapted = plan(name, method="lora", **sizes)
    sides = load_model(name).spec
    attentions = len(sides.stacks[0].layers) + 2 * len(sides.layers)  # a decoder layer has two
    assert adapted.states.trained_numel == attentions * 2 * 8 * 2 * sides.hidden_size  # q and v: A and B of rank 8


def test_a_longer_source_costs_and_a_default_length_is_cut_to_learned_positions() -> None:
    short, long = (
        plan("google/flan-t5-large", method="full", max_source_length=n, max_seq_length=128).allocated_bytes
        for n in (256, 1024)
    )
    assert long > short
    whisper = plan("openai/whisper-large-v3", method="full")
    assert whisper.recipe.max_seq_length == 448
    assert any("448 positions" in note for note in whisper.notes)
