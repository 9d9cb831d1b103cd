"""Snapshots of the documented structure, written with pickle; torch's own viewer is the independent reference.

There is no GPU behind these: tests.diagnosis.states.allocator writes what torch.cuda.memory._dump_snapshot would.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from planner.diagnosis import Finding, diagnose
from planner.diagnosis.states.rewind import block_bytes, final_state, last_oom, rewind, segment_bytes
from planner.diagnosis.states.segments import pool_states, segment_states
from planner.diagnosis.states.snapshot import Snapshot, problems
from planner.diagnosis.states.snapshot_reader import read_json, read_pickle
from planner.errors import SourceError
from tests.diagnosis.states.allocator import Allocator, OutOfMemory, busy_allocator

MIB = 1 << 20


def reread(data: Any, protocol: int = 4) -> Snapshot:
    return read_pickle(io.BytesIO(pickle.dumps(data, protocol=protocol)))


def finding_of(data: Any, tmp_path: Path) -> Finding:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(data, protocol=4))
    return diagnose(path).findings[0]


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 11 * MIB + 512, 12 * MIB),
    ],
)
def test_rounding_rules(size: int, block: int, segment: int) -> None:
    assert (block_bytes(size), segment_bytes(size)) == (block, segment)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_totals_equal_those_of_torchs_viewer(seed: int, protocol: int) -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    data = busy_allocator(seed).snapshot()
    snapshot = reread(data, protocol)
    assert problems(snapshot) == ()
    states = segment_states(final_state(snapshot, 0))
    assert sum(s.active_bytes for s in states) == sum(viewer.calc_active(s) for s in data["segments"])
    text = viewer.segsum(data)
    printed = dict(re.findall(r"total_(reserved|allocated): ([\d.]+[KMGT]?i?B)", text))
    assert printed["reserved"] == viewer._format_size(sum(s.size_bytes for s in states))
    requested = sum(b["requested_size"] for s in data["segments"] for b in s["blocks"] if b["state"] != "inactive")
    assert printed["allocated"] == viewer._format_size(requested)


@pytest.mark.parametrize("seed", range(12))
def test_state_is_rewound_to_the_oom_event(seed: int) -> None:
    """What the replay says of the moment of the oom equals what really was then."""
    allocator = busy_allocator(seed, capacity=256 * MIB, steps=150)
    with pytest.raises(OutOfMemory):
        while True:
            allocator.allocate(40 * MIB, "culprit")
    then = copy.deepcopy(allocator)
    addresses = [b["address"] for s in then.segments.values() for b in s["blocks"] if b["state"] != "inactive"]
    for address in addresses:  # the exception unwinds: everything is freed, and the cache given back
        allocator.free(address)
    allocator.empty_cache()
    allocator.allocate(3 * MIB)
    snapshot = reread(allocator.snapshot())
    oom = last_oom(snapshot, 0)
    assert oom is not None
    moment = rewind(snapshot, 0, oom)
    assert moment.allocated_bytes == then.allocated
    assert moment.reserved_bytes == then.reserved
    assert snapshot.columns.address[oom] == then.free_on_device
    large = [p for p in pool_states(segment_states(moment)) if p.segment_type == "large"]
    assert max((p.largest_inactive_bytes for p in large), default=0) == max(then.gaps("large"), default=0)


def fragmented() -> Allocator:
    """64 segments of 20 MiB, each with 3 MiB in the middle kept: 17 MiB free in each, in two pieces."""
    allocator = Allocator(64 * 20 * MIB)
    blocks = [[allocator.allocate(size * MIB, "cache") for size in (8, 3, 9)] for _ in range(64)]
    for first, _, last in blocks:
        allocator.free(first)
        allocator.free(last)
    return allocator


def test_fragmentation_is_shown_by_the_largest_block(tmp_path: Path) -> None:
    allocator = fragmented()
    with pytest.raises(OutOfMemory):
        allocator.allocate(30 * MIB, "attention")
    finding = finding_of(allocator.snapshot(), tmp_path)
    assert (finding.failure, finding.verdict.confidence) == ("fragmentation_clue", "high")
    assert finding.figures["tried_bytes"] == 30 * MIB
    assert finding.figures["largest_inactive_bytes"] == 9 * MIB
    assert finding.figures["allocated_bytes"] == 64 * 3 * MIB
    assert finding.figures["reserved_unallocated_bytes"] == 64 * 17 * MIB
    assert finding.tables["sites"][0] == {"site": "cache (cache.py:5)", "blocks": 64, "size_bytes": 64 * 3 * MIB}
    assert "look" not in finding.actions[0].do.lower()


def test_expandable_segments_are_no_fragmentation(tmp_path: Path) -> None:
    allocator = fragmented()
    with pytest.raises(OutOfMemory):
        allocator.allocate(30 * MIB)
    data = allocator.snapshot()
    for segment in data["segments"]:
        segment["is_expandable"] = True
    assert finding_of(data, tmp_path).failure != "fragmentation_clue"


def test_full_device_after_unwinding_is_not_called_fragmented(tmp_path: Path) -> None:
    allocator = Allocator(1 << 30)
    blocks = []
    with pytest.raises(OutOfMemory):
        while True:
            blocks.append(allocator.allocate(50 * MIB, "weights"))
    for address in blocks:
        allocator.free(address)
    finding = finding_of(allocator.snapshot(), tmp_path)
    assert (finding.failure, finding.verdict.second) == ("device_full", None)
    assert finding.figures["allocated_bytes"] == 20 * 50 * MIB
    assert finding.tables["events_undone"] == 40
    assert any("not the failure's" in line for line in finding.verdict.evidence)


def test_one_huge_request(tmp_path: Path) -> None:
    allocator = Allocator(1 << 30)
    allocator.allocate(100 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.allocate(950 * MIB, "logits")
    finding = finding_of(allocator.snapshot(), tmp_path)
    assert finding.failure == "single_huge"


def test_free_device_means_a_limit(tmp_path: Path) -> None:
    allocator = Allocator(1 << 30)
    allocator.allocate(100 * MIB)
    allocator.trace.append({"action": "oom", "device_free": 900 * MIB, "size": 20 * MIB, "stream": 0, "frames": []})
    assert finding_of(allocator.snapshot(), tmp_path).failure == "limit_not_capacity"


def test_no_history_is_undecided_and_says_so(tmp_path: Path) -> None:
    finding = finding_of(busy_allocator(1).snapshot(history=False), tmp_path)
    assert finding.failure == "undecided"
    assert "no history" in finding.verdict.rule


def test_list_of_segments_and_its_json_are_read_alike() -> None:
    data = busy_allocator(2).snapshot()["segments"]
    expected = segment_states(final_state(reread(data), 0))
    assert segment_states(final_state(read_json(json.dumps(data)), 0)) == expected
    assert len(expected) == len(data)


def test_layout_of_torch_1_13_without_block_addresses() -> None:
    data = busy_allocator(3).snapshot()
    expected = segment_states(final_state(reread(data), 0))
    for segment in data["segments"]:
        for key in ("segment_pool_id", "is_expandable", "frames", "requested_size"):
            del segment[key]
        for block in segment["blocks"]:
            frames = block.pop("frames")
            block["history"] = [{"addr": block.pop("address"), "real_size": block["size"], "frames": frames}]
            del block["requested_size"]
    assert segment_states(final_state(reread(data, 2), 0)) == expected


def test_both_names_of_the_pending_state() -> None:
    for name in ("active_pending_free", "active_awaiting_free"):
        data = busy_allocator(4).snapshot(history=False)
        block = next(b for s in data["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
        block["state"] = name
        moment = final_state(reread(data), 0)
        assert moment.allocated_bytes == moment.live_bytes - block["size"]


def test_private_pools_cannot_serve_others(tmp_path: Path) -> None:
    allocator = fragmented()
    with pytest.raises(OutOfMemory):
        allocator.allocate(30 * MIB)
    data = allocator.snapshot()
    for segment in data["segments"]:
        segment["segment_pool_id"] = (0, 7)
    finding = finding_of(data, tmp_path)
    assert finding.failure != "fragmentation_clue"
    assert finding.figures["private_pool_bytes"] == 64 * 17 * MIB


def test_host_traces_and_unknown_keys_are_passed_over() -> None:
    data = busy_allocator(5).snapshot()
    data["host_segments"] = []
    data["host_traces"] = [{"action": "alloc", "addr": 1, "size": 5, "stream": 0, "frames": []}]
    data["new_in_torch_3"] = {"anything": [1, 2.5, None, True]}
    snapshot = reread(data)
    assert len(snapshot.traces[0]) == len(data["device_traces"][0])


def test_mapped_ranges_are_rewound() -> None:
    """Expandable segments: a map after the oom is undone, an unmap comes back."""
    page = 20 * MIB
    segment = {
        "device": 0, "address": 100 * page, "total_size": 3 * page, "allocated_size": page, "active_size": page,
        "stream": 0, "segment_type": "large", "is_expandable": True, "segment_pool_id": (0, 0),
        "blocks": [
            {"address": 100 * page, "size": page, "state": "active_allocated"},
            {"address": 101 * page, "size": 2 * page, "state": "inactive"},
        ],
    }  # fmt: skip
    trace = [
        {"action": "oom", "device_free": 0, "size": page, "stream": 0},
        {"action": "segment_unmap", "addr": 105 * page, "size": page, "stream": 0},
        {"action": "segment_map", "addr": 101 * page, "size": page, "stream": 0},
    ]
    snapshot = reread({"segments": [segment], "device_traces": [trace]})
    moment = rewind(snapshot, 0, 0)
    assert sorted((s.address // page, s.size // page) for s in moment.spans.values()) == [(100, 1), (102, 1), (105, 1)]
    assert moment.reserved_bytes == 3 * page


def test_several_devices_are_several_findings(tmp_path: Path) -> None:
    data = busy_allocator(6).snapshot()
    other = Allocator(1 << 30, device=3)
    other.allocate(5 * MIB)
    second = other.snapshot()
    data["segments"] += second["segments"]
    data["device_traces"] = [data["device_traces"][0], [], [], second["device_traces"][3]]
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(data))
    assert [f.message.device for f in diagnose(path).findings] == [0, 3]


def test_paths_of_the_user_are_not_echoed(tmp_path: Path) -> None:
    finding = finding_of(busy_allocator(7).snapshot(), tmp_path)
    assert "someone" not in json.dumps(finding.to_json()).replace(str(tmp_path), "")


def test_segments_that_do_not_add_up_are_named(tmp_path: Path) -> None:
    data = busy_allocator(8).snapshot()
    data["segments"][0]["total_size"] += 512
    assert any("do not add up" in p for p in finding_of(data, tmp_path).tables["problems"])


def test_overlapping_segments_do_not_loop() -> None:
    data = busy_allocator(9).snapshot(history=False)
    for segment in data["segments"]:
        segment["total_size"] = 1 << 45
    states = segment_states(final_state(reread(data), 0))
    assert len(states) == len(data["segments"])


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"segments": 5},
        {"segments": [5]},
        {"segments": [{"total_size": 5}]},
        {"segments": [{"total_size": -7, "blocks": []}]},
        {"segments": [{"total_size": "7", "blocks": []}]},
        {"segments": [{"total_size": 7, "blocks": [5]}]},
        {"segments": [{"total_size": 7, "blocks": [{"state": "odd", "size": 7}]}]},
        {"segments": [{"total_size": 7, "blocks": [{"state": "inactive", "size": True}]}]},
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1 << 70}]]},
        {"segments": [], "device_traces": [{"action": "alloc"}]},
        {"segments": [], "other": [{"action": "alloc", "addr": 1}]},
    ],
    ids=str,
)
def test_what_is_no_snapshot_is_refused_in_one_line(data: Any) -> None:
    if data == []:
        assert reread(data).segments == ()
        return
    with pytest.raises(SourceError) as error:
        reread(data)
    assert "\n" not in str(error.value)
