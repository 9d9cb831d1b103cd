"""Faults found in earlier readings, each with what is right, and one more of its kind where the kind is wider."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.diagnosis import Finding, diagnose_text
from planner.units import GIB, MIB
from tests.diagnosis.test_cli import run

FAULTS = {
    row["id"]: row
    for row in map(json.loads, (Path(__file__).parent / "data" / "faults.jsonl").read_text("utf-8").splitlines())
}


def only(name: str) -> Finding:
    findings = diagnose_text(FAULTS[name]["text"]).findings
    assert len(findings) == 1
    return findings[0]


def names(finding: Finding) -> list[str]:
    return [action.name for action in finding.actions]


def words(finding: Finding) -> str:
    return " ".join(f"{a.do} {a.setting or ''} {a.command or ''}" for a in finding.actions)


def read(finding: Finding) -> tuple[str, str]:
    return finding.failure, finding.verdict.confidence


def test_the_advice_sentence_is_no_setting() -> None:
    plain, advised, on = only("f01a"), only("f01b"), only("f01c")
    assert plain.failure == advised.failure == "fragmentation_clue"
    assert plain.actions == advised.actions and "expandable_segments:True" in words(plain)
    assert "alloc_conf" not in advised.message.context
    assert "expandable_segments" not in words(on)


@pytest.mark.parametrize(
    ("line", "is_on"),
    [
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", True),
        ('os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"', True),
        ("I already tried setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", True),
        ("You could try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", False),
        ("> please set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`", False),
    ],
)
def test_a_setting_is_what_is_set_not_what_is_proposed(line: str, is_on: bool) -> None:
    finding = diagnose_text(f"{line}\n{FAULTS['f01b']['text']}").findings[0]
    assert ("alloc_conf" in finding.message.context) is is_on


def test_a_servers_sampler_is_no_training_loss() -> None:
    finding = only("f02")
    assert finding.message.context["phase"] == "sampler"
    assert names(finding)[:3] == ["lower_utilization", "lower_max_num_seqs", "fewer_logprobs"]
    assert not {"attention_kernel", "smaller_batch", "release_live"} & set(names(finding))


def test_what_is_not_printed_is_not_zero() -> None:
    assert read(only("f03")) == ("other_process", "high")
    empty = only("f04")
    assert empty.failure == "other_process" and "7310" in words(empty)
    assert not {"smaller_work", "release_live", "smaller_batch"} & set(names(empty))


def test_a_pasted_nvidia_smi_names_the_holder_and_the_free_card() -> None:
    finding = only("f05")
    assert finding.failure == "other_process"
    (holder,) = finding.ownership.holders
    assert (holder.pid, holder.name, holder.size_bytes) == (40112, "python3", 22310 * MIB)
    assert finding.ownership.free_gpus == ((1, 14 * MIB, 24564 * MIB),)
    assert names(finding)[:2] == ["end_holder", "use_free_gpu"] and "nvidia-smi" not in words(finding)


def test_this_process_is_not_among_the_others() -> None:
    finding = only("f06")
    assert finding.failure == "other_process" and finding.ownership.own_pid == 501
    assert [p.pid for p in finding.ownership.holders] == [502, 503, 504]
    assert finding.ownership.others == pytest.approx(6.32 * GIB, abs=0.01 * GIB)


RECOGNISED: list[tuple[str, Callable[[Finding], bool]]] = [
    ("f08", lambda f: f.failure == "host_memory" and names(f)[0] == "page_file"),
    ("f09", lambda f: read(f) == ("device_full", "low") and {"ct2_smaller", "ct2_batch"} <= set(names(f)[:2])),
    ("f11", lambda f: f.failure == "device_full"),
    ("f13", lambda f: read(f) == ("host_memory", "medium")),
    ("f14", lambda f: read(f) == ("host_memory", "medium")),
    ("f16", lambda f: f.failure == "bug" and "no memory failure" in f.headline),
    ("f17", lambda f: f.failure == "limit_not_capacity" and "multiprocessor" in f.headline),
    ("f18", lambda f: f.failure == "undecided" and "lines above" in f.headline),
    ("f24", lambda f: f.failure == "limit_not_capacity" and f.verdict.second == "single_huge"),
    ("f29", lambda f: read(f) == ("host_memory", "medium")),
    ("f30", lambda f: f.message.program in ("mlx", "metal") and not {"-ngl", "--tensor-split"} & set(words(f).split())),
]


@pytest.mark.parametrize(("name", "is_right"), RECOGNISED, ids=[name for name, _ in RECOGNISED])
def test_recognised_with_the_right_class(name: str, is_right: Callable[[Finding], bool]) -> None:
    assert is_right(only(name)), only(name).to_json()


def test_figures_of_other_wordings() -> None:
    metal = only("f10")
    assert (metal.failure, metal.message.program) == ("limit_not_capacity", "mlx")
    assert (metal.figures["tried_bytes"], metal.figures["limit_bytes"]) == (25_769_803_776, 19_069_665_280)
    paddle = only("f20")
    assert (paddle.figures["tried_bytes"], paddle.figures["free_bytes"]) == (126_353_408, 67_371_008)


def test_host_remedies_follow_the_place() -> None:
    slurm = only("f21")
    assert slurm.failure == "host_memory" and "--mem" in (slurm.actions[0].setting or "")
    assert "docker" not in words(slurm)
    machine = only("f22")
    assert machine.figures["host_resident_bytes"] == 54_000_000 * 1024
    assert "whole machine" in machine.headline and "51.5" in machine.headline
    assert "container" not in words(machine) and "docker" not in words(machine)


def test_a_useless_context_is_not_first() -> None:
    assert "--max-model-len 640" not in " ".join(a.setting or "" for a in only("f25").actions[:3])
    assert names(only("f25"))[0] == "raise_utilization"


def test_the_weights_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(FAULTS["f26"]["text"])
    text = run(str(path), *FAULTS["f26"]["args"])
    assert text.startswith("The weights alone (135.49 GiB) exceed the card (79.1")
    document = json.loads(run(str(path), *FAULTS["f26"]["args"], "--format", "json"))
    (finding,) = document["findings"]
    assert finding["context"]["phase"] == "load" and finding["actions"][0]["name"] == "plan_weights"
    assert not any("batch" in a["do"] and a["name"] != "plan_weights" for a in finding["actions"][:1])


def test_a_framed_message_keeps_its_figures() -> None:
    figures = only("f28").figures
    assert {
        "tried_bytes", "total_bytes", "free_bytes", "process_in_use_bytes", "allocated_bytes",
        "reserved_unallocated_bytes",
    } <= set(figures)  # fmt: skip


MESSAGE = FAULTS["f01b"]["text"].strip()


@pytest.mark.parametrize(
    "frame",
    [
        lambda line: f"> {line}",
        lambda line: f"> > {line}",
        lambda line: f"│ {line:<78} │",
        lambda line: f"        {line}",
        lambda line: f"worker-1  | {line}",
        lambda line: f"[rank3]: {line}",
        lambda line: f"2026-11-30T02:11:07.123456Z stderr F {line}",
        lambda line: f"Nov 30 02:11:07 gpu01 python[4411]: {line}",
    ],
    ids=["quoted", "twice", "framed", "indented", "compose", "rank", "cri", "journald"],
)
def test_wrapped_and_framed_text_keeps_every_figure(frame: Callable[[str], str]) -> None:
    whole = diagnose_text(MESSAGE).findings[0].figures
    lines: list[str] = []
    for word in MESSAGE.split():
        if lines and len(lines[-1]) + len(word) < 70:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    assert diagnose_text("\n".join(map(frame, lines)) + "\n").findings[0].figures == whole


def test_every_fault_has_a_test() -> None:
    source = Path(__file__).read_text("utf-8")
    assert all(f'"{name}"' in source for name in FAULTS)


def test_with_a_card_alone_its_capacity_is_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("ggml_cuda: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\n")

    def found(*arguments: str) -> Any:
        return json.loads(run(str(path), *arguments, "--format", "json"))["findings"][0]

    assert found()["class"] == "device_full"
    assert found("--gpu", "4090")["class"] == "single_huge"
    assert found("--gpu-memory", "79GiB")["class"] == "device_full"
