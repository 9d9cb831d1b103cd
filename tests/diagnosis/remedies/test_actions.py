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
    return " ".join([*(f"{a.do} {a.setting or ''}" for a in finding.actions), *finding.cautions])


def test_every_name_that_code_and_data_use_is_in_the_catalogue() -> None:
    book = catalogue()
    names = {n for p in (p for f in families() for p in f.patterns) for n in p.advise}
    names |= {n for entry in book["choice"] for n in entry["do"]} - {"*"}
    folder = Path(__file__).parents[3] / "planner" / "diagnosis"
    for path in folder.rglob("*.py"):
        for group in re.findall(r"advise=\(([^()]*)\)", path.read_text(encoding="utf-8")):
            names |= set(re.findall(r'"(\w+)"', group))
    assert names <= set(book["actions"])
    assert {n for group in book["class_cautions"].values() for n in group} <= set(book["cautions"])
    assert set(book["class_cautions"]) == set(CLASS_SENTENCES)


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


def test_order_for_fragmentation_the_setting_then_the_test() -> None:
    names = [a.name for a in one(SLACK).actions]
    assert names[:2] == ["expandable_segments", "restart_test"]
    assert {"bucket", "isolate", "look_at_snapshot"} <= set(names)
    old = (
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity; 10.00 GiB already allocated; "
        "0.20 GiB free; 22.00 GiB reserved in total by PyTorch)"
    )
    assert one(old).actions[0].name == "upgrade_torch", "torch to 1.9 has neither setting"
    assert one(old + " try setting max_split_size_mb").actions[0].name == "max_split"


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


def test_graph_capture_asks_for_a_lower_fraction() -> None:
    frame = '  File "/venv/vllm/v1/worker/gpu_model_runner.py", line 5, in capture_model\n    self._dummy_run(n)\n'
    first = one(frame + FULL).actions[0]
    assert first.name == "lower_utilization" and (first.setting or "").startswith("--gpu-memory-utilization 0.")


def test_expandable_segments_are_not_advised_where_they_cannot_help() -> None:
    for text in (
        f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n{SLACK}",
        f"File C:\\Users\\me\\train.py\n{SLACK}",
        SLACK.replace("CUDA out", "XPU out"),
    ):
        assert not any(a.name == "expandable_segments" for a in one(text).actions)


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("torch==2.10.0", "export PYTORCH_ALLOC_CONF="),
        ("torch==2.6.0", "export PYTORCH_CUDA_ALLOC_CONF="),
        ("", "export PYTORCH_CUDA_ALLOC_CONF="),
    ],
)
def test_the_variable_has_the_name_of_the_version(before: str, name: str) -> None:
    assert name in said(one(f"{before}\n{SLACK}"))


def test_others_are_not_to_be_killed() -> None:
    other = torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "12.00 GiB", "0.20 GiB", in_use="12.80 GiB")
    assert "Do not kill other people's processes and do not reset a card" in said(one(other))


def test_remedies_of_exit_137() -> None:
    text = said(one("container exited with code 137"))
    for word in ("container's memory limit", "shared memory", "straight to the device", "not the only one"):
        assert word in text


def test_engine_numbers_are_inverted() -> None:
    """24.00 GiB for 1,048,576 tokens, 9.97 available: 1,048,576 x 9.97 / 24.00 = 435,596, in blocks of 16 435,584."""
    finding = one(
        "To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed, "
        "which is "
        "larger than the available KV cache memory (9.97 GiB). Try increasing"
    )
    assert finding.verdict.derived["fitting_max_model_len"] == 435_584
    assert any(a.setting == "--max-model-len 435584" for a in finding.actions)
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
    assert any(a.setting == "--gpu-memory-utilization 0.87" for a in start.actions)


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
