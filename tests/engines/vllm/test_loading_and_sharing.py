"""Loading peaks by version, sleep mode, and instances that share a card."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import footprint_bytes, plan_serving
from planner.engines.vllm.plan import VllmPlan as ServingPlan
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB
from tests.cli.running import run

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
# 8,030,261,248 weights, the rotary table of 131,072 x 128, both in 16 bit
LLAMA_16_BIT = 8_030_261_248 * 2 + 131_072 * 128 * 2


def plan(version: str = "0.19.0", name: str = LLAMA, gpu: str = "H100", **inputs: object) -> ServingPlan:
    values = {"gpu": find_gpu(gpu), "engine_version": version, "max_model_len": 8192} | inputs
    return plan_serving(load_model(name), Deployment(**values))  # type: ignore[arg-type]


def test_online_fp8_lays_out_the_whole_model_up_to_0_14() -> None:
    early, late = plan("0.12.0", quantization="fp8"), plan("0.19.0", quantization="fp8")
    assert early.load.gpu_peak_bytes == pytest.approx(LLAMA_16_BIT, rel=0.002)
    assert late.load.gpu_peak_bytes < 0.7 * LLAMA_16_BIT
    assert any("lays the whole model out" in note for note in early.notes)
    assert not any("lays the whole model out" in note for note in late.notes)


def test_online_fp8_that_cannot_be_loaded() -> None:
    """A 14B model in 16 bit is more than 24 GB: 0.12 dies while loading what 0.19 serves in fp8."""
    inputs = {"name": "Qwen/Qwen3-14B", "gpu": "4090", "quantization": "fp8", "max_model_len": 4096}
    early, late = plan("0.12.0", **inputs), plan("0.19.0", **inputs)
    assert early.startup_error is not None and early.startup_error.kind == "weights"
    assert late.startup_error is None


def test_a_checkpoint_in_fp8_is_no_online_conversion() -> None:
    early = plan("0.12.0", name="Qwen/Qwen3-30B-A3B-FP8")
    assert not any("lays the whole model out" in note for note in early.notes)


def test_sleep_mode_backs_weights_up_on_the_host() -> None:
    awake, asleep = plan(tensor_parallel_size=2), plan(tensor_parallel_size=2, enable_sleep_mode=True)
    weights = awake.budget.component("weights")
    assert weights is not None
    assert asleep.load.host_bytes - awake.load.host_bytes == 2 * weights.best
    assert any("before 0.27" in note for note in asleep.notes)
    assert not any("before 0.27" in note for note in plan("0.30.0", enable_sleep_mode=True).notes)


def test_unified_memory_says_so() -> None:
    assert any("unified memory" in note for note in plan(gpu="GB10").notes)
    assert not any("unified memory" in note for note in plan().notes)


def instances(count: int, fraction: float, version: str = "0.19.0") -> ServingPlan:
    deployment = Deployment(
        gpu=find_gpu("H100"),
        engine_version=version,
        max_model_len=8192,
        gpu_memory_utilization=fraction,
        instances=count,
    )
    return plan_serving(load_model(LLAMA), deployment)


def test_two_instances_of_half_a_card() -> None:
    """0.45 each leaves a tenth of the card for two contexts and two sets of graphs; the second of 0.9 is refused."""
    both = instances(2, 0.45)
    assert both.verdict in ("fits", "tight")
    assert both.kv_cache_bytes == instances(1, 0.45).kv_cache_bytes  # 0.9.2 and later: others do not count
    greedy = instances(2, 0.9)
    assert greedy.startup_error is not None and greedy.startup_error.kind == "free_memory"


def test_the_fraction_that_is_named_works_and_more_does_not() -> None:
    note = next(note for note in instances(3, 0.4).notes if "instances of" in note)
    named = float(note.split("at most --gpu-memory-utilization ")[1].split(" ")[0])
    assert instances(3, named).startup_error is None
    assert instances(3, named + 0.01).verdict == "does_not_fit"


def test_early_v1_counts_the_others_as_its_own() -> None:
    alone, second = instances(1, 0.45, "0.8.5"), instances(2, 0.45, "0.8.5")
    assert alone.kv_cache_bytes > 5 * GIB
    assert second.kv_cache_bytes == 0
    assert any("counts what the other instances hold" in note for note in second.notes)


def test_footprint_is_fraction_and_what_lies_beside() -> None:
    found = instances(1, 0.5)
    outside = sum(part.best for part in found.budget.outside)
    assert footprint_bytes(found) == found.budget.requested_bytes + outside


def test_absurd_numbers() -> None:
    for count in (0, -1, 65):
        with pytest.raises(UsageError):
            instances(count, 0.5)


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--gpu", "H100", "--max-model-len", "8192", "--gpu-memory-utilization", "0.45", "--format", "json")
    shared = run(capsys, monkeypatch, "serve", LLAMA, "--instances", "2", "--enable-sleep-mode", *options)
    assert shared.status == 0
    found = json.loads(shared.out)
    assert "--enable-sleep-mode" in found["command"]
    assert any("2 instances" in note for note in found["notes"])


def test_others_that_are_already_there() -> None:
    base = Deployment(gpu=find_gpu("H100"), engine_version="0.19.0", max_model_len=8192, gpu_memory_utilization=0.5)
    crowded = plan_serving(load_model(LLAMA), replace(base, already_used_bytes=50 * GIB))
    assert crowded.startup_error is not None and crowded.startup_error.kind == "free_memory"
