"""The CPU back end on four tiny architectures: what was planned against what transformers and torch really hold."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from planner.model.shallow.subject import read_subject
from planner.probe.figures import Figure, Measurement
from planner.probe.session import measure_serve, measure_train
from planner.training.generation import Generation
from planner.training.plain_loop import plain_loop_recipe
from planner.training.recipe import Recipe
from tests.probe.tiny import CONFIGS, write_config

TOLERANCE = 0.05
LORA = {"method": "lora", "lora_rank": 4}
TARGETS = {"gpt_neox": ("query_key_value",)}
RECIPES: dict[str, dict[str, object]] = {
    "full": {"method": "full"},
    "full, checkpointed, fp32": {"method": "full", "gradient_checkpointing": True, "dtype": "float32"},
    "full, eager": {"method": "full", "attn_implementation": "eager"},
    "full, two micro-batches": {"method": "full", "gradient_accumulation_steps": 2},
    "lora": LORA,
    "lora, checkpointed": {**LORA, "gradient_checkpointing": True},
}


def named(found: Measurement, name: str) -> Figure:
    return next(figure for figure in found.figures if figure.name == name)


def within(found: Measurement, *names: str) -> None:
    for name in names:
        figure = named(found, name)
        assert figure.error is not None and abs(figure.error) <= TOLERANCE, figure


@pytest.mark.parametrize("model_type", CONFIGS)
@pytest.mark.parametrize("length", (24, 120), ids=("inside the window", "beyond it"))
def test_generation(model_type: str, length: int, tmp_path: Path) -> None:
    subject = read_subject(write_config(tmp_path, model_type))
    found = measure_serve(subject, Generation(batch_size=2, input_len=length, output_len=3), device="cpu")
    weights = named(found, "weights")
    assert weights.planned == weights.measured
    within(found, "weights", "kv_cache", "prefill_peak")
    assert found.within(TOLERANCE)


@pytest.mark.parametrize("model_type", CONFIGS)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_training(model_type: str, recipe: dict[str, object], tmp_path: Path) -> None:
    subject = read_subject(write_config(tmp_path, model_type))
    targets = TARGETS.get(model_type, ("q_proj", "v_proj")) if recipe["method"] == "lora" else ()
    wanted = Recipe(
        per_device_train_batch_size=2, max_seq_length=96, padding=False, lora_target_modules=targets,
        **recipe,  # type: ignore[arg-type]
    )  # fmt: skip
    found = measure_train(subject, plain_loop_recipe(wanted), device="cpu")
    for name in ("weights", "gradients", "optimizer"):
        assert named(found, name).planned == named(found, name).measured, name
    within(found, "saved_activations", "backward_peak", "step_peak", "peak_allocated")
    assert found.within(TOLERANCE)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_two_depths_say_what_the_whole_model_takes(model_type: str, tmp_path: Path) -> None:
    layers = 18 if model_type == "gemma3_text" else 8
    changes: dict[str, object] = {"num_hidden_layers": layers}
    if model_type == "gemma3_text":
        changes["layer_types"] = (["sliding_attention"] * 5 + ["full_attention"]) * 3
    subject = read_subject(write_config(tmp_path, model_type, **changes))
    workload = Generation(batch_size=2, input_len=64, output_len=2)
    whole = measure_serve(subject, workload, device="cpu")
    cut = measure_serve(subject, workload, device="cpu", layers=layers // 2)
    assert cut.depths.deep < layers and whole.depths.deep == layers
    for name in ("weights", "kv_cache", "prefill_peak"):
        extrapolated, real = named(cut, name).measured, named(whole, name).measured
        assert extrapolated is not None and real is not None
        assert extrapolated == pytest.approx(real, rel=0.001), name


def test_the_attention_implementation_is_the_one_asked_for(tmp_path: Path) -> None:
    """Eager holds batch x heads x length^2 scores in fp32: 2 x 8 x 120^2 x 4 B above SDPA at the least."""
    subject = read_subject(write_config(tmp_path, "llama"))
    peaks = []
    for attention in ("eager", "sdpa"):
        workload = Generation(batch_size=2, input_len=120, output_len=1, attn_implementation=attention)
        peak = named(measure_serve(subject, workload, device="cpu"), "prefill_peak").measured
        assert peak is not None
        peaks.append(peak)
    assert peaks[0] - peaks[1] >= 2 * 8 * 120 * 120 * 4
