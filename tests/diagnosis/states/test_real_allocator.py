"""Snapshots of a real CUDA allocator that ran out: an H200, torch 2.11.0, `benchmarks/snapshot_on_gpu.py`, 2026-11-29.

Expected values are torch's own: `memory_stats` as the error was handled, and what the error's message printed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.diagnosis import Finding, diagnose
from planner.diagnosis.states.rewind import final_state, last_oom, rewind
from planner.diagnosis.states.segments import segment_states
from planner.diagnosis.states.snapshot import Snapshot, problems
from planner.diagnosis.states.snapshot_reader import read_pickle

DATA = Path(__file__).parents[1] / "data" / "h200"
KINDS = ("native", "expandable")
MIB = 1 << 20


def snapshot_of(kind: str, name: str) -> Snapshot:
    with (DATA / kind / f"{name}.pickle").open("rb") as file:
        return read_pickle(file)


def stats_of(kind: str) -> dict[str, Any]:
    return json.loads((DATA / kind / "stats.json").read_text())["at_error"]


def finding_of(kind: str, name: str) -> Finding:
    return diagnose(DATA / kind / name).findings[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_state_at_the_error_equals_torchs_statistics(kind: str) -> None:
    snapshot, stats = snapshot_of(kind, "snapshot"), stats_of(kind)
    assert problems(snapshot) == ()
    oom = last_oom(snapshot, 0)
    assert oom is not None
    for moment in (final_state(snapshot, 0), rewind(snapshot, 0, oom)):
        states = segment_states(moment)
        assert moment.allocated_bytes == stats["allocated_bytes.all.current"]
        assert moment.reserved_bytes == stats["reserved_bytes.all.current"]
        assert len(moment.live) == stats["active.all.current"]
        for pool in ("large", "small"):
            own = [state for state in states if state.segment_type == pool]
            assert sum(state.active_bytes for state in own) == stats[f"active_bytes.{pool}_pool.current"]
            assert sum(state.size_bytes for state in own) == stats[f"reserved_bytes.{pool}_pool.current"]


def test_split_and_segments_of_the_native_allocator() -> None:
    """torch counts neither for expandable segments."""
    states, stats = segment_states(final_state(snapshot_of("native", "snapshot"), 0)), stats_of("native")
    assert len(states) == stats["segment.all.current"] == 82
    inactive = sum(state.inactive_bytes for state in states if state.is_partly_used)
    assert inactive == stats["inactive_split_bytes.all.current"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_snapshot_is_rewound_to_the_error(kind: str) -> None:
    """Everything was freed since; the trace has requested sizes, so blocks come back without what was not cut off."""
    snapshot, stats = snapshot_of(kind, "late"), stats_of(kind)
    assert final_state(snapshot, 0).allocated_bytes == 0
    oom = last_oom(snapshot, 0)
    assert oom is not None
    moment = rewind(snapshot, 0, oom)
    assert moment.reserved_bytes == stats["reserved_bytes.all.current"]
    assert len(moment.live) == stats["active.all.current"]
    assert stats["requested_bytes.all.current"] <= moment.allocated_bytes <= stats["allocated_bytes.all.current"]
    assert sum(moment.live.values()) - stats["requested_bytes.all.current"] < 512 * len(moment.live)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["snapshot.pickle", "late.pickle", "messages.txt"])
def test_the_limit_is_named(kind: str, name: str) -> None:
    """3 GiB were allowed of a card with 136 GiB free."""
    finding = finding_of(kind, name)
    assert finding.failure == "limit_not_capacity"
    assert finding.figures["tried_bytes"] == 642 * MIB


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_says_what_the_message_printed(kind: str) -> None:
    """All but allocated, to which the message adds the 16 MiB that the graph's pool holds free."""
    printed, held = finding_of(kind, "messages.txt").figures, finding_of(kind, "snapshot.pickle").figures
    half_a_digit = 0.005 * (1 << 30)
    assert held["free_bytes"] == pytest.approx(printed["free_bytes"], abs=half_a_digit)
    assert held["private_pool_bytes"] == printed["private_pool_bytes"] == 16 * MIB
    assert held["reserved_unallocated_bytes"] == pytest.approx(printed["reserved_unallocated_bytes"], abs=0.005 * MIB)
    with_pool = held["allocated_bytes"] + held["private_pool_bytes"]
    assert with_pool == pytest.approx(printed["allocated_bytes"], abs=half_a_digit)


def test_more_than_the_card_is_one_huge_request() -> None:
    finding = diagnose(DATA / "native" / "messages.txt").findings[0]
    assert finding.failure == "single_huge"
    assert finding.figures["tried_bytes"] == pytest.approx(2 * 150_109_880_320, abs=0.005 * (1 << 30))


@pytest.mark.parametrize("kind", KINDS)
def test_the_summary_has_the_same_figures(kind: str) -> None:
    finding, stats = finding_of(kind, "summary.txt"), stats_of(kind)
    assert finding.figures["num_ooms"] == stats["num_ooms"]
    assert finding.figures["reserved_total_bytes"] == pytest.approx(stats["reserved_bytes.all.current"], abs=MIB)
    assert finding.figures["allocated_bytes"] == pytest.approx(stats["allocated_bytes.all.current"], abs=MIB)


def test_sites_are_those_of_the_script() -> None:
    sites = {row["site"].split(" ")[0] for row in finding_of("native", "snapshot.pickle").tables["sites"]}
    assert {"run_out", "fill"} <= sites
