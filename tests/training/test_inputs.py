"""Small inputs with right values, computed by hand outside this code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.training.objectives import beside
from planner.training.objectives.logprobs import implementation
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe
from planner.training.sharding import deepspeed
from planner.training.tape import cuda
from planner.training.vision import images
from planner.training.vision.towers import Tower
from planner.units import GIB

_DATA = Path(__file__).parent / "data" / "training_inputs.jsonl"
_CASES = [json.loads(line) for line in _DATA.read_text("utf-8").splitlines()]
_TOWER = Tower(kind="qwen2_5_vl", hidden_size=1280, intermediate_size=3420, heads=16, layers=32)
_P = 7_615_616_512


def plan(name: str, gpu: str = "A100-80GB", **options: object) -> TrainingPlan:
    return plan_training(load_model(name), Recipe(**options), find_gpu(gpu), replays=False)  # type: ignore[arg-type]


def zero(stage: str, **options: object) -> TrainingPlan:
    return plan("Qwen/Qwen2.5-7B", method="full", num_gpus=8, sharding=stage, gradient_checkpointing=True,
                reduce_bucket_size=500_000_000, **options)  # fmt: skip


def _d1a() -> dict[str, Any]:
    held = zero("zero2").sharded
    persistent = held.weights + held.optimizer
    both = zero("zero2", overlap_comm=True).sharded.buckets
    return {"persistent_bytes": persistent, "bucket_bytes": [held.buckets, both],
            "step_worst_bytes": persistent + held.gradients + held.step_temporary}  # fmt: skip


def _d1b() -> dict[str, Any]:
    recipe = Recipe(sharding="zero3")
    share = _P // 8
    return {"persistent_bytes": 16 * share, "step_adds_bytes": zero("zero3").sharded.step_temporary,
            "live_parameters_bytes_max": deepspeed.live_bytes(recipe, 0)}  # fmt: skip


def _d2() -> dict[str, Any]:
    share = _P // 8
    pinned = [round(deepspeed.pinned_bytes(share * width) / GIB) for width in (4, 4, 2)]
    return {"pinned_gib_per_rank": pinned, "pageable_gib_per_rank": share * 8 / GIB}


def _r3() -> dict[str, Any]:
    found = plan("Qwen/Qwen2.5-7B", framework="verl", objective="grpo", method="full", num_gpus=8)
    held = found.sharded
    return {"state_bytes_per_gpu": held.weights + held.gradients + held.optimizer,
            "reference_on_gpu_static": sum(p.best for p in found.components if p.name == "other_models"),
            "reference_host_bytes_per_rank": found.host_bytes}  # fmt: skip


def _o1() -> dict[str, Any]:
    found = plan("meta-llama/Meta-Llama-3-8B", "H200", objective="classification", method="full", num_labels=2,
                 per_device_train_batch_size=16, max_seq_length=512)  # fmt: skip
    return {"logits_bytes": 16 * 512 * 2 * 2, "parameters": found.states.trained_numel}


def _r6() -> dict[str, Any]:
    found = plan("Qwen/Qwen2.5-7B", "H200", objective="ppo", method="full", num_gpus=8, sharding="zero2",
                 generation_share=0.0)  # fmt: skip
    return {"other_models_bytes": next(p.best for p in found.components if p.name == "other_models")}


def _head(code: str, moment: str, tokens: int, key: str) -> dict[str, Any]:
    found = implementation(code)
    return {key: found.bytes(moment, tokens, 152_064), "coefficient": int(getattr(found, moment))}


_ANSWERS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "V1a": lambda: {"tower_saved_bytes": _TOWER.saved_bytes(5120, "trained")},
    "V1b": lambda: {"tower_saved_bytes": _TOWER.saved_bytes(5120, "frozen")},
    "V1c": lambda: {"tower_saved_bytes": _TOWER.saved_bytes(5120, "frozen", checkpointed=True),
                    "one_block_recompute_bytes": _TOWER.recomputed_bytes(5120)},
    "V1d": lambda: {"tower_saved_bytes": _TOWER.saved_bytes(5120, "outside")},
    "V2b": lambda: {"resized_h_w": list(images.smart_resize(1080, 1920, 28, 3136, 12_845_056)),
                    "tokens": images.picture("qwen2_5_vl", 1920, 1080).tokens},
    "V2c": lambda: vars_of(images.internvl_picture(4)),
    "V2d": lambda: {"tokens": images.picture("pixtral", 512, 512).tokens},
    "V2e": lambda: {"tokens": [images.picture("siglip", 1, 1).tokens, images.gemma4_picture().tokens],
                    "patches": [images.picture("siglip", 1, 1).patches, images.gemma4_picture().patches]},
    "V4": lambda: dict(zip(("saved_bytes_layer", "worst_moment_bytes"), _TOWER.score_bytes(5120), strict=True)),
    "R1a": lambda: _head("trl", "backward", 8192, "backward_peak_bytes_about"),
    "R1b": lambda: _head("trl-new-tensor", "backward", 8192, "backward_peak_bytes_about"),
    "R1c": lambda: _head("trl-fp32", "backward", 8192, "backward_peak_bytes_about"),
    "R2b": lambda: _head("verl-entropy", "backward", 16_384, "peak_bytes_about"),
    "R2c": lambda: _head("verl", "no_grad", 16_384, "peak_bytes_about"),
    "R3": _r3,
    "R4": lambda: {"engine_gib_every_phase_no_sleep": beside.engine_bytes(80 * GIB, 0.3, asleep=False) / GIB,
                   "engine_gib_update_with_sleep": beside.engine_bytes(80 * GIB, 0.3, asleep=True)},
    "R6": _r6,
    "O1": _o1,
    "O2": lambda: {"rows_with_activations": [beside.rows_with_activations(2, 256),
                                             beside.rows_with_activations(2, 256, 32)]},
    "E1": lambda: dict(zip(("encoder_bytes", "decoder_bytes", "cross_kv_bytes"), beside.encoder_decoder_bytes(
        hidden_size=1280, intermediate_size=5120, heads=20, layers=32, source=1500, target=448), strict=True)),
    "S1": lambda: {"full_ac_bytes": 2 * 4096 * 32 * 8192, "saved_bytes": beside.selective_bytes(
        8192, 32, hidden_size=4096, query_size=4096, key_size=1024, intermediate_size=14_336, heads=32)},
    "D1a": _d1a,
    "D1b": _d1b,
    "D2": _d2,
    "EV": lambda: {"bytes": beside.kept_logits_bytes(200, 2048, 128_256),
                   "with_argmax_bytes": beside.kept_predictions_bytes(200, 2048)},
    "C1": lambda: {"cuda_extra_bytes": cuda.softmax_backward_bytes(16 * 4096 * 4096, 4)},
    "C2": lambda: {"cuda_extra_bytes": cuda.flash_backward_bytes(8192, 32, 128, 8)},
    "C3": lambda: {"cuda_extra_bytes_about": [cuda.embedding_backward_bytes(n, 4096) for n in (16_384, 3000)]},
}  # fmt: skip


def vars_of(found: images.Picture) -> dict[str, Any]:
    return {"tokens": found.tokens, "patches": found.patches}


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["id"])
def test_small_inputs(case: dict[str, Any]) -> None:
    found, right = _ANSWERS[case["id"]](), case["right"]
    for key, value in right.items():
        loose = key.endswith("about") or key in ("persistent_bytes", "pageable_gib_per_rank", "state_bytes_per_gpu")
        assert found[key] == (pytest.approx(value, rel=0.06 if key.endswith("about") else 2e-3) if loose else value)
