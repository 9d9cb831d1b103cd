"""Actions and cautions: in order, where they apply, never a command that changes anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.diagnosis import Finding, diagnose_text
from planner.diagnosis.messages.assembly import messages_in
from planner.diagnosis.messages.wordings import families
from planner.diagnosis.remedies.catalogue import catalogue
from planner.diagnosis.remedies.choice import actions, cautions
from planner.diagnosis.result import CLASS_SENTENCES
from planner.diagnosis.rules.classify import classify
from planner.diagnosis.rules.engines import fitting_length
from planner.diagnosis.rules.large_tensors import ModelShape, could_be, shape_sentence
from tests.diagnosis.accuracy import messages
from tests.diagnosis.rules.test_rules import torch_message

SLACK = torch_message("2.00 GiB", "23.64 GiB", "1.00 GiB", "14.00 GiB", "8.00 GiB")
FULL = torch_message("2.00 GiB", "23.64 GiB", "1.18 GiB", "19.90 GiB", "1.42 GiB")


def one(text: str) -> Finding:
    return diagnose_text(text).findings[0]


def said(finding: Finding) -> str:
    return " ".join([*(a.do for a in finding.actions), *finding.cautions])


def test_every_name_that_code_and_data_use_is_in_the_catalogue() -> None:
    book = catalogue()
    names = {n for p in (p for f in families() for p in f.patterns) for n in p.advise}
    names |= {n for group in (*book["classes"].values(), *book["phases"].values()) for n in group} - {"levers"}
    folder = Path(__file__).parents[3] / "planner" / "diagnosis"
    for path in folder.rglob("*.py"):
        for group in re.findall(r"advise=\(([^()]*)\)", path.read_text(encoding="utf-8")):
            names |= set(re.findall(r'"(\w+)"', group))
    assert names <= set(book["actions"])
    assert {n for group in book["class_cautions"].values() for n in group} <= set(book["cautions"])
    assert set(book["classes"]) == set(book["class_cautions"]) == set(CLASS_SENTENCES)


def test_every_message_gets_actions_with_a_reason() -> None:
    for row in messages():
        for message in messages_in(row["text"]):
            found = actions(message, classify(message))
            assert found, row["id"]
            assert all(a.do and a.why and "{" not in a.do.replace("{{", "") for a in found)
            assert len(cautions(message, classify(message))) == len(set(cautions(message, classify(message))))


def test_commands_only_look() -> None:
    changing = re.compile(r"\b(kill|rm|reset|pkill|fuser -k|sudo|reboot|gpu-reset|dd|mv|docker run|export)\b")
    for entry in catalogue()["actions"].values():
        assert not changing.search(entry.get("command") or ""), entry


def test_order_for_fragmentation_test_first_then_settings() -> None:
    doing = [a.do for a in one(SLACK).actions]
    restart = next(i for i, d in enumerate(doing) if d.startswith("Restart the process"))
    expandable = next(i for i, d in enumerate(doing) if "expandable_segments" in d)
    assert restart == 0 < expandable
    for word in ("fixed sizes", "own processes", "newer torch"):
        assert any(word in d for d in doing)


def test_cautions_of_fragmentation() -> None:
    text = " ".join(one(SLACK).cautions)
    for phrase in (
        "neither reclaimable memory nor room for more requests",
        "before the process starts",
        "PYTORCH_ALLOC_CONF from torch 2.9",
        "only where inactive split blocks exist",
        "frees no live tensor",
        "high plateau of reserved is not",
    ):
        assert phrase in text


def test_full_device_hands_over_to_the_levers() -> None:
    assert "vram-planner" in one(FULL).actions[0].do
    assert "vram-planner train" in one(f'  File "t.py", line 5\n    loss.backward()\n{FULL}').actions[0].do
    serving = one(f"(EngineCore_DP0 pid=7) vllm worker profile_run\n{FULL}")
    assert any("vram-planner serve" in a.do for a in serving.actions)


def test_graph_capture_asks_for_a_lower_fraction() -> None:
    assert "--gpu-memory-utilization" in one(f"File vllm/worker.py in capture_model\n{FULL}").actions[0].do


def test_expandable_segments_are_not_advised_where_they_cannot_help() -> None:
    for text in (
        f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n{SLACK}",
        f"File C:\\Users\\me\\train.py\n{SLACK}",
        SLACK.replace("CUDA out", "XPU out"),
    ):
        assert not any("expandable_segments:True" in a.do for a in one(text).actions)


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("torch==2.10.0", "variable PYTORCH_ALLOC_CONF before"),
        ("torch==2.6.0", "variable PYTORCH_CUDA_ALLOC_CONF before"),
        ("", "PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF from torch 2.9)"),
    ],
)
def test_the_variable_has_the_name_of_the_version(before: str, name: str) -> None:
    assert name in said(one(f"{before}\n{SLACK}"))


def test_others_are_not_to_be_killed() -> None:
    other = torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "12.00 GiB", "0.20 GiB", in_use="12.80 GiB")
    assert "Do not kill other people's processes and do not reset a card" in said(one(other))


def test_remedies_of_exit_137() -> None:
    text = said(one("container exited with code 137"))
    for word in ("RAM", "shared memory", "Load straight to the device", "not the only one"):
        assert word in text


def test_engine_numbers_are_inverted() -> None:
    """24.00 GiB for 1,048,576 tokens, 9.97 available: 1,048,576 x 9.97 / 24.00 = 435,596, in blocks of 16 435,584."""
    finding = one(
        "To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed, "
        "which is "
        "larger than the available KV cache memory (9.97 GiB). Try increasing"
    )
    assert finding.verdict.derived["fitting_max_model_len"] == 435_584
    assert any("--max-model-len 435584" in a.do for a in finding.actions)
    assert any("windows and recurrent layers do not" in c for c in finding.cautions)
    printed = one(
        finding.message.text + " GiB). Based on the available memory, the estimated maximum model length is 9999."
    )
    assert printed.verdict.derived["fitting_max_model_len"] == 9984, "the engine's own number, in blocks of 16"
    v0 = one(
        "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV "
        "cache (7344)."
    )
    assert v0.verdict.derived == {"fitting_max_model_len": 7344, "requests_that_fit": 0}
    start = one(
        "Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 19.84 "
        "GiB)."
    )
    # 19.77 / 22.05 = 0.8966, less 0.02, to two decimals
    assert start.verdict.derived["fitting_gpu_memory_utilization"] == 0.87
    assert any("--gpu-memory-utilization to 0.87" in a.do for a in start.actions)


def test_lines_around_an_engines_refusal_are_read() -> None:
    """1.00 GiB missing of 24.00 GiB is 0.0417: 0.90 becomes 0.95."""
    log = (
        "INFO worker.py:1 the current vLLM instance can use total_gpu_memory (24.00GiB) x gpu_memory_utilization "
        "(0.90) = "
        "21.60GiB\nINFO Model loading took 15.2 GiB\nINFO Available KV cache memory: 1.00 GiB\n"
        "ValueError: To serve at least one request with the models's max seq len (8192), (2.00 GiB KV cache is "
        "needed, which "
        "is larger than the available KV cache memory (1.00 GiB). Try increasing"
    )
    finding = one(log)
    assert finding.verdict.derived["fitting_gpu_memory_utilization"] == 0.95
    assert finding.verdict.derived["fitting_max_model_len"] == 4096
    assert any("loading the model took 15.2 GiB" in line for line in finding.verdict.evidence)
    assert "fitting_gpu_memory_utilization" not in one(log.replace("(24.00GiB)", "(8.00GiB)")).verdict.derived
    assert one(log.replace("24.00GiB", "2.4.0.0GiB")).failure == "engine_budget"


def test_fitting_length_at_the_edges() -> None:
    assert fitting_length(1000, 0, 5) == 0
    assert fitting_length(1000, 10, -5) == 0
    assert fitting_length(4096, 4096, 4096) == 4096


def test_shapes_that_a_request_could_have() -> None:
    """30,688 tokens x 151,936 x 4 B = 18,650,447,872 B, printed as 17.37 GiB after rounding to 2 MiB."""
    qwen = ModelShape(vocab_size=151_936, num_attention_heads=28)
    found = could_be(round(17.37 * 2**30), 5_368_710, qwen)
    logits = next(t for t in found if t.name == "logits in fp32")
    assert abs(logits.shape[0] - 30_688) <= 10 and logits.shape[1] == 151_936
    scores = next(t for t in found if t.name == "attention scores in 16 bit")
    assert scores.shape == (28, 18_252, 18_252)
    assert all(abs(t.size_bytes - 17.37 * 2**30) < 2**30 * 0.1 for t in found)
    assert could_be(5, 0, qwen) == ()
    assert "S = 17,071 for 32 heads" in shape_sentence(round(17.37 * 2**30))
