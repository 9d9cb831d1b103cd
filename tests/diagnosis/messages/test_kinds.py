"""A message of every kind, in the form in which its program prints it: its class, its remedy's spelling, its screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.diagnosis import diagnose_text
from planner.diagnosis.messages.anchors import anchors
from planner.diagnosis.messages.wordings.not_memory import KINDS as NOT_MEMORY
from planner.diagnosis.remedies.catalogue import belongs
from planner.report.diagnosis import render_diagnosis
from planner.report.diagnosis.first_screen import MOST_LINES

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "kinds.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_kind_is_read_as_what_it_is(row: dict[str, str]) -> None:
    diagnosis = diagnose_text(row["text"])
    finding = diagnosis.findings[0]
    assert finding.failure in row["failure"]
    if row["failure"] == "bug" and finding.message.kind in NOT_MEMORY:
        assert "no memory failure" in finding.headline
    assert finding.actions
    assert all(belongs(action.name, finding.message.context.get("trade", "")) for action in finding.actions)
    assert row.get("says", "") in " ".join(f"{action.do} {action.setting}" for action in finding.actions[:2])
    lines = render_diagnosis(diagnosis, format="table").split("\n")
    assert len(lines) <= MOST_LINES
    assert next(n for n, line in enumerate(lines, 1) if line.startswith("Do first: ")) <= 8
    assert all(len(line) <= 80 or len(line.split()) <= 1 for line in lines)


@pytest.mark.parametrize("repeats", [True, False])
def test_every_anchor_is_found_in_a_long_text(repeats: bool) -> None:
    """Whether the lines around it repeat, or all differ."""
    from planner.diagnosis.messages.passages import _hits

    text, expected = "", []
    for number, anchor in enumerate(anchors()):
        lines = (number * 40 + n for n in range(40))
        text += "".join("step of many, as before\n" if repeats else f"{n * 7919:x} {n * 104729:x}\n" for n in lines)
        expected.append(len(text) + 2)
        text += f"x {anchor} y\n"
    found = set(_hits(text, 0, len(text)))
    assert [text[at : at + 20] for at in expected if at not in found] == []


def test_an_engines_line_around_a_torch_message_names_engine_and_phase() -> None:
    text = (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total "
        "capacity of 79.11 GiB of which 500.00 MiB is free. Of the allocated memory 75.00 GiB is allocated by PyTorch, "
        "and 1.00 GiB is reserved by PyTorch but unallocated."
    )
    finding = diagnose_text(text).findings[0]
    assert (finding.message.context["engine"], finding.message.context["phase"]) == ("sglang", "graph_capture")
    assert "--mem-fraction-static" in str(finding.actions[0].setting)
