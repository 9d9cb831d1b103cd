"""Levers of fine-tunes: the same laws, and the hand case of a full fine-tune of 8B on 80 GB."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import Model, find_gpu, load_model
from planner.errors import PlannerError, UsageError
from planner.levers.effect import effects
from planner.levers.search import merged
from planner.levers.training import TrainingQuestion, advise_training, kept_recipe_inputs, training_levers
from planner.training.recipe import Recipe
from planner.units import GIB
from tests.cli.running import run
from tests.engines.vllm.test_laws import models

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
# levers, sets and exit status accept the same verdicts
ACCEPTED = ("fits", "tight")

recipes = st.builds(
    Recipe,
    method=st.sampled_from(["full", "lora", "qlora"]),
    dtype=st.sampled_from([None, "float32"]),
    per_device_train_batch_size=st.sampled_from([1, 4, 6]),
    gradient_accumulation_steps=st.sampled_from([1, 4]),
    max_seq_length=st.sampled_from([512, 2048, 4096]),
    gradient_checkpointing=st.booleans(),
    attn_implementation=st.sampled_from(["eager", "sdpa"]),
)


@settings(max_examples=12, deadline=None)
@given(models, recipes, st.integers(6, 40))
def test_savings_and_sets_of_fine_tunes(subject: Model, recipe: Recipe, card: int) -> None:
    question = TrainingQuestion(model=subject, recipe=recipe, gpu=None, gpu_memory_bytes=card * GIB)
    try:
        before = question.ask({})
    except PlannerError:
        assume(False)
    for effect in effects(question, before, training_levers(before)):
        after = question.ask(effect.setting.changes)
        assert effect.saves_bytes == before.needed_best - after.needed_best
        assert effect.verdict == after.verdict
        assert effect.fits_alone == (after.verdict in ACCEPTED)
        was, now = before.recipe, after.recipe
        if effect.setting.name == "per-device-train-batch-size":
            assert (
                was.per_device_train_batch_size * was.gradient_accumulation_steps
                == now.per_device_train_batch_size * now.gradient_accumulation_steps
            )
    advice = advise_training(question, before)
    assert len(advice.plans) <= 5
    for one in advice.plans:
        assert question.ask(merged(one.settings)).verdict == one.verdict
        assert one.verdict in ACCEPTED
        for index in range(len(one.settings)):
            assert not question.fits(merged(one.settings[:index] + one.settings[index + 1 :]))


def test_full_fine_tune_of_8b_on_80_gb() -> None:
    """8,030,261,248 weights with mixed-precision Adam: 2 + 4 + 4 + 4 + 4 B = 18 B each = 134.6 GiB on 79.19.

    Adapters train a few million of them: the base alone is 15 GiB, in 4 bit 5 to 6. Over n cards the 18 B are
    shared: 67.3 GiB for two, before activations, 33.7 for four.
    """
    recipe = Recipe(method="full", master_weights="fp32", grad_dtype="fp32")
    question = TrainingQuestion(model=load_model(LLAMA), recipe=recipe, gpu=find_gpu("H100"))
    before = question.ask({})
    assert before.needed_best > 18 * 8_030_261_248
    advice = advise_training(question, before)
    singles = {effect.setting.name: effect for effect in advice.levers}
    assert singles["method-lora"].fits_alone and singles["method-qlora"].fits_alone
    cards = singles["num-gpus"]
    assert cards.fits_alone and cards.setting.flag == "--num-gpus 4 --sharding zero3"
    assert not question.fits({"num_gpus": 2, "sharding": "zero3"})
    # LoRA keeps the 2 B base: what goes is at least gradients, states and master copy, 16 B of 18
    assert singles["method-lora"].saves_bytes > 0.97 * 16 * 8_030_261_248
    assert advice.relief is not None and advice.relief.cards == 4
    assert [term.name for term in advice.relief.excess] == ["optimizer"]  # 12 B x 8.03e9 = 89.7 GiB


def test_unknown_inputs_to_keep_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean"):
        kept_recipe_inputs("max-seq-len")


def test_the_command_fills_levers_and_plans(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", LLAMA, "--gpu", "4090", "--method", "full", "--keep", "max-seq-length", "--no-largest")
    result = run(capsys, monkeypatch, *words, "--format", "json")
    document = json.loads(result.out)
    assert result.status == 1 and document["plans"] and document["levers"]
    assert {"name", "phase", "from", "to", "flag", "saves_bytes", "fits_alone", "cost"} <= document["levers"][0].keys()
    assert not any(lever["name"] == "max-seq-length" for lever in document["levers"])
    table = run(capsys, monkeypatch, *words)
    assert "what fits, cheapest first" in table.out
