"""The plan of a workload beside a message: planned, observed, and where they differ. Expectations worked by hand.

Qwen2.5-7B: 28 layers, 28 heads, 4 key/value heads of 128, hidden 3,584, vocabulary 152,064, 7,615,616,512 weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.contract.engine import find_engine
from planner.diagnosis import Finding, diagnose_text
from planner.diagnosis.expectation.beside_plan import Expectation, with_plan
from planner.diagnosis.expectation.comparison import Comparison
from planner.diagnosis.expectation.workload import ServingWorkload, TrainingWorkload, Workload
from planner.diagnosis.expectation.workload_tensors import matching, shape_of
from planner.engines.vllm.deployment import Deployment
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.levers.question import ServingQuestion
from planner.levers.training import TrainingQuestion
from planner.model.load import load_model
from planner.training.recipe import Recipe
from tests.diagnosis.test_cli import run

GIB = 2**30
MODEL = load_model("Qwen/Qwen2.5-7B-Instruct")
VLLM = find_engine("vllm")
REFUSAL = (
    "Model loading took 14.2488 GiB and 3.1 seconds\n"
    "Available KV cache memory: 1.50 GiB\n"
    "ValueError: To serve at least one request with the model's max seq len (32768), (1.75 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (1.50 GiB). Based on the available memory, the estimated "
    "maximum model length is 28080. Try increasing"
)


def message(tried: str, *, total: float, free: float, in_use: float, allocated: float, before: str = "") -> str:
    return (
        f"{before}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of "
        f"{total:.2f} GiB of which {free:.2f} GiB is free. Including non-PyTorch memory, this process has {in_use:.2f} "
        f"GiB memory in use. Of the allocated memory {allocated:.2f} GiB is allocated by PyTorch, and 336.73 MiB is "
        "reserved by PyTorch but unallocated."
    )


LOSS = message(
    "9.28 GiB", total=23.64, free=7.0, in_use=16.6, allocated=15.8, before='  File "t.py", line 5\n    cross_entropy(\n'
)


def served(gpu: str = "4090", **options: Any) -> ServingWorkload:
    return ServingWorkload(
        question=ServingQuestion(engine=VLLM, model=MODEL, deployment=Deployment(gpu=find_gpu(gpu), **options))
    )


def trained(gpu: str = "4090", **options: Any) -> TrainingWorkload:
    return TrainingWorkload(question=TrainingQuestion(model=MODEL, recipe=Recipe(**options), gpu=find_gpu(gpu)))


def beside(text: str, workload: Workload) -> tuple[Finding, Expectation, dict[str, Comparison]]:
    finding = with_plan(diagnose_text(text), workload).findings[0]
    assert finding.plan is not None
    return finding, finding.plan, {row.name: row for row in finding.plan.rows}


def test_an_engines_refusal_beside_the_plans_own_numbers() -> None:
    """28 layers x 2 x 4 heads x 128 x 2 B = 57,344 B a token; x 32,768 = 1,879,048,192 B = 1.75 GiB."""
    _, plan, rows = beside(REFUSAL, served(engine_version="0.19.0"))
    needed = rows["needed_kv_bytes"]
    assert needed.planned == 28 * 2 * 4 * 128 * 2 * 32_768 == 1_879_048_192
    assert needed.observed == round(1.75 * GIB) and needed.difference == 0 and needed.beyond == 0
    # 7,615,616,512 x 2 B = 14.185 GiB; rotary tables and rounding on top; the log: 14.2488 GiB
    weights = rows["weights_bytes"]
    assert 15_231_233_024 <= weights.planned <= 15_231_233_024 + GIB // 8
    assert abs(weights.beyond) < GIB // 1000
    available = rows["available_kv_bytes"]
    assert available.observed == round(1.5 * GIB) and available.beyond < 0
    assert rows["fitting_max_model_len"].observed == 28_080
    assert plan.verdict == "fits"
    assert "max_model_len 32,768 is taken from the text" in plan.notes
    assert any(note.startswith("available_kv_bytes: 4.") and "other processes" in note for note in plan.notes)
    assert not any(note.startswith("weights_bytes") for note in plan.notes)


def test_the_length_that_the_user_names_is_not_overruled() -> None:
    _, plan, rows = beside(REFUSAL, served(max_model_len=16_384))
    assert rows["needed_kv_bytes"].planned == 57_344 * 16_384
    assert not any("taken from the text" in note for note in plan.notes)
    assert any(note.startswith("needed_kv_bytes") and "length" in note for note in plan.notes)


def test_the_fraction_is_inverted_beside_the_plans() -> None:
    """0.9 x 24.00 GiB = 21.6 GiB wanted; the plan of a 24 GiB card: 0.9 x 25,769,803,776 = 23,192,823,398.4 B."""
    text = (
        "Free memory on device cuda:0 (14.40/24.0 GiB) on startup is less than desired GPU memory utilization (0.9, "
        "21.6 GiB). Decrease GPU memory utilization"
    )
    workload = ServingWorkload(
        question=ServingQuestion(engine=VLLM, model=MODEL, deployment=Deployment(gpu_memory_bytes=24 * GIB))
    )
    _, _, rows = beside(text, workload)
    assert rows["requested_bytes"].planned in (23_192_823_398, 23_192_823_399)
    assert rows["requested_bytes"].beyond == 0
    free = rows["free_at_start_bytes"]
    assert free.observed == round(14.4 * GIB) and 24 * GIB - 2 * GIB < free.planned < 24 * GIB
    assert free.beyond < -7 * GIB
    # 14.40 / 24.00 = 0.60, less two hundredths
    assert rows["fitting_gpu_memory_utilization"].observed == 0.58


def test_a_huge_request_is_named_when_the_workload_makes_such_a_tensor() -> None:
    """8 sequences x 2,048 x 152,064 x 4 B = 9,965,666,304 B = 9.2813 GiB, printed as 9.28."""
    finding, plan, _ = beside(LOSS, trained(per_device_train_batch_size=8))
    assert finding.failure == "single_huge" and plan.point == "loss forward"
    assert plan.tensors[0].name == "logits in fp32"
    assert plan.tensors[0].shape == (8, 2_048, 152_064) and plan.tensors[0].size_bytes == 9_965_666_304
    assert any("the size of logits in fp32: 8 x 2048 x 152064 x 4 B" in note for note in plan.notes)


def test_attention_scores_and_weights_by_size() -> None:
    """Scores: 2 x 28 x 4,096^2 x 2 B = 1,879,048,192 B. Embedding: 152,064 x 3,584 x 2 B = 1,089,994,752 B."""
    recipe = trained(per_device_train_batch_size=2, max_seq_length=4_096, attn_implementation="eager")
    assert [t.name for t in matching(1_879_048_192, 0, recipe)] == ["attention scores in 16 bit"]
    (embedding,) = matching(round(1.02 * GIB), 5_368_710, served())
    assert embedding.shape == (152_064, 3_584) and embedding.name == "model.embed_tokens.weight in 16 bit"
    assert matching(20 << 20, 0, recipe) == () and matching(5, 0, recipe) == ()


def test_without_such_a_tensor_the_shapes_stand_beside_the_workloads() -> None:
    """(9.28 GiB + half a hundredth) / (152,064 x 4 B) = 9,969,692,837 / 608,256 = 16,390 tokens; the plan has 256."""
    _, plan, rows = beside(LOSS, trained(max_seq_length=256, gradient_checkpointing=True))
    assert plan.tensors == () and plan.verdict == "fits"
    assert "as logits in fp32 of this model: 16,390 tokens; the plan has 256" in plan.notes
    live = rows["allocated_with_request_bytes"]
    # 15.80 + 9.28 GiB; in hand-worked terms the frozen 16-bit weights alone are 14.19 GiB
    assert live.observed == round(15.8 * GIB) + round(9.28 * GIB)
    assert live.planned > 15_231_233_024 and live.beyond > 8 * GIB
    assert any(note.startswith("allocated_with_request_bytes: 10.") and "leak" in note for note in plan.notes)


def test_heads_of_a_batch_lie_in_one_tensor() -> None:
    assert shape_of(MODEL, sequences=4).num_attention_heads == 4 * 28
    assert shape_of(load_model("state-spaces/mamba-2.8b-hf")).num_attention_heads == 0


def test_levers_come_first_where_the_plan_does_not_fit() -> None:
    finding, plan, _ = beside(LOSS, trained(per_device_train_batch_size=8))
    assert plan.verdict == "does_not_fit" and plan.advice.plans
    flags = " ".join(setting.flag for setting in plan.advice.plans[0].settings)
    assert (finding.actions[0].name, finding.actions[0].setting) == ("plan_levers", flags)
    assert any("larger than the card" in note for note in plan.notes)


def test_a_plan_that_fits_points_elsewhere() -> None:
    """A 0.5 share of 79.19 GiB is 39.6 GiB: another 40 GiB on the card is a second such engine."""
    text = message("512.00 MiB", total=79.19, free=0.29, in_use=38.9, allocated=37.0)
    finding, plan, rows = beside(text, served("H100 80GB", gpu_memory_utilization=0.5))
    assert plan.verdict == "fits" and any("the plan fits" in note for note in plan.notes)
    # 79.19 - 0.29 - 38.90 = 40.00 GiB are neither free nor this process's
    other = rows["other_bytes"]
    assert other.planned == 0 and other.observed is not None and abs(other.observed - 40 * GIB) < GIB // 100
    assert any("second worker" in note for note in plan.notes)
    assert any(action.do.startswith("Compare what ran") for action in finding.actions)
    _, _, rows = beside(text, served("H100 80GB", gpu_memory_utilization=0.5, already_used_bytes=40 * GIB))
    assert rows["other_bytes"].planned == 40 * GIB and abs(rows["other_bytes"].beyond) < GIB // 50


def test_another_card_is_said() -> None:
    """23.64 GiB against 79.19 GiB."""
    _, plan, rows = beside(LOSS, trained("H100 80GB"))
    assert rows["total_bytes"].beyond < -50 * GIB
    assert any("another card" in note and "--gpu-memory" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("before", "point"),
    [
        ("    loss.backward()\n", "loss backward"),
        ('  File "torch/optim/adamw.py"\n', "optimizer step"),
        ("    from_pretrained(\n", "loading"),
        ("", "loss backward"),
    ],
)
def test_the_phase_of_a_traceback_is_the_phase_of_the_plan(before: str, point: str) -> None:
    """A traceback through backward is that of the loss or of the layers: the larger counts. None named: the peak."""
    text = message("1.00 GiB", total=23.64, free=0.5, in_use=23.0, allocated=22.0, before=before)
    workload = trained(method="full", optim="adamw_torch")
    _, plan, rows = beside(text, workload)
    phases = {phase.name: phase.allocated_bytes for phase in workload.plan.phases}
    assert plan.point == point
    assert rows["allocated_with_request_bytes"].planned == phases[plan.point]


@pytest.mark.parametrize(
    ("before", "point"),
    [
        ("    load_model(\n", "loading the weights"),
        ("    profile_run(\n", "profile run"),
        ("    allocate_kv_cache(\n", "laying out the KV cache"),
        ("", "serving"),
    ],
)
def test_moments_of_a_server_hold_what_exists_then(before: str, point: str) -> None:
    """Weights while loading, activations on top in the profile run, the cache beside the weights after it."""
    text = message("1.00 GiB", total=23.64, free=0.5, in_use=23.0, allocated=22.0, before=before)
    workload = served(max_model_len=8_192)
    _, plan, rows = beside(text, workload)
    plain = workload.plan
    parts = {part.name: part.best for part in plain.budget.inside + plain.budget.outside}
    expected = parts["weights"]
    if point in ("profile run", "serving"):
        expected += parts["activation_peak"] + parts.get("persistent_buffers", 0)
    if point in ("laying out the KV cache", "serving"):
        expected += plain.kv_cache_bytes
    row = rows["allocated_with_request_bytes"]
    assert (plan.point, row.planned) == (point, expected)
    assert row.low <= row.planned <= row.high


def test_a_killed_process_is_not_a_matter_of_the_card() -> None:
    """60,000,000 kB x 1,024 = 61,440,000,000 B."""
    text = "Out of memory: Killed process 77 (python) total-vm:100000000kB, anon-rss:60000000kB"
    finding, plan, rows = beside(text, served())
    assert finding.failure == "host_memory" and rows["host_resident_bytes"].observed == 61_440_000_000
    assert rows["host_resident_bytes"].planned == 0
    assert any("does not bear" in note for note in plan.notes)
    assert not any(action.do.startswith("Compare what ran") for action in finding.actions)


def test_states_are_compared_too() -> None:
    stats = json.dumps(
        {"allocated_bytes.all.current": GIB, "allocated_bytes.all.peak": 30 * GIB, "reserved_bytes.all.peak": 31 * GIB,
         "reserved_bytes.all.current": 2 * GIB, "num_ooms": 1, "num_alloc_retries": 1}
    )  # fmt: skip
    _, _, rows = beside(stats, trained("H100 80GB", max_seq_length=256, gradient_checkpointing=True))
    assert rows["peak_allocated_bytes"].observed == 30 * GIB and rows["peak_allocated_bytes"].beyond > 10 * GIB
    smi = "index, memory.total [MiB], memory.used [MiB], memory.free [MiB]\n0, 81559 MiB, 80000 MiB, 1000 MiB\n"
    _, _, rows = beside(smi, served("H100 80GB", gpu_memory_utilization=0.5))
    assert rows["in_use_bytes"].observed == 80_000 << 20 and rows["in_use_bytes"].beyond > 30 * GIB


def test_beyond_counts_from_the_band_and_the_print() -> None:
    row = Comparison(name="x", unit="bytes", planned=100, low=90, high=120, observed=130, margin=4)
    assert (row.difference, row.beyond) == (30, 6)
    row = Comparison(name="x", unit="bytes", planned=100, low=90, high=120, observed=80, margin=4)
    assert (row.difference, row.beyond) == (-20, -6)
    row = Comparison(name="x", unit="bytes", planned=100, low=90, high=120, observed=123, margin=4)
    assert (row.beyond, row.to_json()["within"]) == (0, True)
    unsaid = Comparison(name="x", unit="bytes", planned=100, low=90, high=120, observed=None)
    assert (unsaid.difference, unsaid.beyond, unsaid.to_json()["within"]) == (None, 0, None)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text(LOSS)
    return str(path)


def test_the_command_adds_a_plan_to_each_finding_only_with_a_model(log: str) -> None:
    (plain,) = json.loads(run(log, "--format", "json"))["findings"]
    assert "plan" not in plain
    arguments = (log, "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--train", "-b", "8")
    (found,) = json.loads(run(*arguments, "--format", "json"))["findings"]
    assert {k: v for k, v in found.items() if k not in ("plan", "actions")} == {
        k: v for k, v in plain.items() if k != "actions"
    }
    plan = found["plan"]
    assert (plan["kind"], plan["point"], plan["verdict"]) == ("train", "loss forward", "does_not_fit")
    assert plan["tensors"][0]["shape"] == [8, 2_048, 152_064]
    assert plan["levers"][0]["flag"] and plan["plans"][0]["verdict"] in ("fits", "tight")
    assert {"name", "unit", "planned", "observed", "difference", "within"} <= set(plan["figures"][0])
    assert "does not fit this card" in run(*arguments)
    table = run(*arguments, "--more")
    assert "Planned" in table and "Difference" in table and "Plan and text" in table
    assert "Planned" in run(*arguments, "--format", "markdown")


def test_without_a_card_the_texts_capacity_is_planned_for(log: str) -> None:
    document = json.loads(run(log, "--model", "Qwen/Qwen2.5-7B-Instruct", "--train", "--format", "json"))
    plan = document["findings"][0]["plan"]
    assert plan["card_bytes"] == round(23.64 * GIB)
    assert plan["notes"][0] == "the card's size is taken from the text"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--max-model-len", "8192"], "--max-model-len says what ran: give --model"),
        (["--train"], "--train says what ran"),
        (["--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--optim", "adamw_torch"], "give --train"),
        (["--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--train", "--max-num-seqs", "4"], "--train out"),
        (["--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--max-model-len", "x"], "max-model-len"),
    ],
)
def test_options_without_effect_are_refused(arguments: list[str], word: str, log: str) -> None:
    with pytest.raises(UsageError, match=word):
        run(log, *arguments)


def test_a_diagnosis_without_a_model_loads_no_planner(log: str) -> None:
    code = (
        "import sys; from planner.cli.diagnose import diagnose; diagnose([sys.argv[1]]);"
        "print([m for m in sys.modules if m.startswith(('planner.serving', 'planner.training', 'planner.levers',"
        " 'planner.model'))])"
    )
    done = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
