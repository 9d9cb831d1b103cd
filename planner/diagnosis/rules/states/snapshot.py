"""A snapshot to findings, one a device: the moment that matters, the allocator's state then, and the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.diagnosis.result import Confidence, FailureClass, Message, Verdict
from planner.diagnosis.rules.thresholds import (
    ALLOCATED_PERCENT,
    FREE_MARGIN_BYTES,
    FULL_PERCENT,
    HUGE_SHARE,
    SLACK_PERCENT,
    percent,
)
from planner.diagnosis.sizes import Figure
from planner.diagnosis.states.rewind import (
    AllocatorState,
    block_bytes,
    final_state,
    last_oom,
    live_stacks,
    peak_event,
    rewind,
    segment_bytes,
)
from planner.diagnosis.states.segments import (
    PoolState,
    SegmentState,
    pool_states,
    segment_states,
    serving_pools,
    top_sites,
)
from planner.diagnosis.states.snapshot import OOM, Snapshot, problems
from planner.units import format_size

_MOST_SEGMENTS_LISTED = 20_000
# Part of the reserved bytes in holes that cannot be given back, from which fragmentation is worth a look.
SCATTERED_PERCENT = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """An out-of-memory event: what was wanted, what was free, and the allocator then. Sizes in bytes."""

    wanted: int
    driver: int
    device_free: int
    stream: int
    allocated: int
    reserved: int
    pools: list[PoolState]

    @property
    def reach(self) -> int:
        """What this process could have had: its own segments and the free memory of the device."""
        return self.reserved + self.device_free

    @property
    def serving(self) -> list[PoolState]:
        """The default pools of the right kind and stream that cannot grow."""
        return [p for p in serving_pools(self.pools, self.wanted, self.stream) if not p.is_expandable]

    @property
    def largest(self) -> int:
        """The largest inactive block that could have served the request."""
        return max((p.largest_inactive_bytes for p in self.serving), default=0)

    @property
    def scattered(self) -> int:
        """Inactive bytes in partly used segments of the right pool."""
        return sum(p.partly_used_inactive_bytes for p in self.serving)


def snapshot_findings(snapshot: Snapshot, *, source: str) -> list[tuple[Message, Verdict, dict[str, Any]]]:
    """Message, verdict and tables for each device that has segments or events."""
    devices = {s.device for s in snapshot.segments} | {d for d, trace in enumerate(snapshot.traces) if trace}
    return [_finding(snapshot, device, source) for device in sorted(devices)[:64]]


def _finding(snapshot: Snapshot, device: int, source: str) -> tuple[Message, Verdict, dict[str, Any]]:
    oom = last_oom(snapshot, device)
    end = final_state(snapshot, device)
    peak = None if oom is not None else peak_event(snapshot, device)
    moment = end if oom is None and peak is None else rewind(snapshot, device, oom if oom is not None else peak or 0)
    name = "oom event" if oom is not None else "peak of the trace" if peak is not None else "end"
    shown = moment if oom is not None else end
    segments = segment_states(shown)
    pools = pool_states(segments)
    figures, verdict = (
        _judge_end(snapshot, end, moment, pools, name)
        if oom is None
        else _judge_oom(_case(snapshot, moment, pools, oom), end, moment, pools)
    )
    odd = problems(snapshot)
    state = "oom event" if oom is not None else "end"
    message = Message(
        program="memory snapshot",
        kind="snapshot",
        version_hint=None,
        figures=figures,
        device=device,
        text=f"{len(segments)} segments, {len(shown.live)} live blocks, state at the {state}",
        source=source,
        context={**({"problems": "; ".join(odd)} if odd else {}), **_settings(snapshot)},
    )
    sites = top_sites(snapshot, moment, live_stacks(snapshot, moment))
    tables = {
        "moment": state,
        "sites_at": name,
        "events_undone": moment.undone,
        "states": _states(segments),
        "pools": [p.to_json() for p in pools],
        "segments": [s.to_json() for s in segments[:_MOST_SEGMENTS_LISTED]],
        "segments_left_out": max(0, len(segments) - _MOST_SEGMENTS_LISTED),
        "sites": [{"site": s.label, "blocks": s.blocks, "size_bytes": s.size_bytes} for s in sites],
        "problems": list(odd),
    }
    return message, verdict, tables


def _settings(snapshot: Snapshot) -> dict[str, str]:
    on = [f"{key}:{value}" for key, value in snapshot.settings.items() if "expandable" in key]
    return {"alloc_conf": ",".join(on)} if on else {}


def _states(segments: list[SegmentState]) -> dict[str, int]:
    return {
        "reserved_bytes": sum(s.size_bytes for s in segments),
        "active_bytes": sum(s.active_bytes for s in segments),
        "awaiting_free_bytes": sum(s.pending_bytes for s in segments),
        "inactive_bytes": sum(s.inactive_bytes for s in segments),
        "inactive_in_partly_used_segments_bytes": sum(s.inactive_bytes for s in segments if s.is_partly_used),
        "largest_inactive_bytes": max((s.largest_inactive_bytes for s in segments), default=0),
        "expandable_bytes": sum(s.size_bytes for s in segments if s.is_expandable),
        "segments": len(segments),
    }


def _case(snapshot: Snapshot, moment: AllocatorState, pools: list[PoolState], oom: int) -> _Case:
    c = snapshot.columns
    assert c.action[oom] == OOM
    return _Case(
        wanted=block_bytes(c.size[oom]),
        driver=segment_bytes(c.size[oom]),
        device_free=c.address[oom],
        stream=c.stream[oom],
        allocated=moment.allocated_bytes,
        reserved=moment.reserved_bytes,
        pools=pools,
    )


def _judge_oom(
    case: _Case, end: AllocatorState, moment: AllocatorState, pools: list[PoolState]
) -> tuple[dict[str, Figure], Verdict]:
    figures = {
        "tried_bytes": case.driver,
        "free_bytes": case.device_free,
        "allocated_bytes": case.allocated,
        "reserved_total_bytes": case.reserved,
        "reserved_unallocated_bytes": case.reserved - case.allocated - _private(pools),
        "private_pool_bytes": _private(pools),
        "largest_inactive_bytes": case.largest,
    }
    failure, second, confidence, rule = _class_at_oom(case)
    evidence = [
        f"at the oom event: {format_size(case.allocated)} allocated of {format_size(case.reserved)} reserved, "
        f"{format_size(case.device_free)} free on the device",
        f"the request takes {format_size(case.wanted)} of a segment, from the driver {format_size(case.driver)}",
        f"largest inactive block that could serve it {format_size(case.largest)}, "
        f"{format_size(case.scattered)} inactive in partly used segments of its pool",
    ]
    if moment.undone:
        evidence.append(
            f"the snapshot itself was taken {moment.undone} events later, with {format_size(end.allocated_bytes)} "
            f"allocated of {format_size(end.reserved_bytes)}: that state is not the failure's"
        )
    if any(p.is_expandable for p in pools):
        evidence.append("expandable segments: holes between live blocks there cost nothing")
    verdict = Verdict(
        failure=failure,
        second=second,
        confidence=confidence,
        rule=rule,
        evidence=tuple(evidence),
        would_change=(
            "a capacity well above reserved + free: something else then holds the rest (a snapshot has no capacity)",
        ),
        advise=("expandable_segments", "bucket") if failure == "fragmentation_clue" else (),
        caution=("after_exception",),
    )
    return {name: Figure(value=size) for name, size in figures.items()}, verdict


def _private(pools: list[PoolState]) -> int:
    """Free bytes that private pools keep, as torch's message counts them."""
    return sum(p.inactive_bytes for p in pools if p.is_private)


def _class_at_oom(case: _Case) -> tuple[FailureClass, FailureClass | None, Confidence, str]:
    if case.device_free > case.driver + FREE_MARGIN_BYTES:
        return "limit_not_capacity", "host_memory", "medium", "the device had more free than the driver was asked for"
    proof = case.largest < case.wanted <= case.scattered
    if proof and case.allocated * 100 < case.reserved * ALLOCATED_PERCENT:
        return (
            "fragmentation_clue",
            "device_full",
            "high",
            "no inactive block holds the request, but the inactive pieces of its pool together would: shown",
        )
    huge = case.wanted * HUGE_SHARE >= case.reach
    if huge and case.allocated * 100 < case.reach * FULL_PERCENT:
        return (
            "single_huge",
            "fragmentation_clue" if proof else "device_full",
            "medium",
            "one request of a quarter of what this process could have, while less than 85% was allocated",
        )
    second: FailureClass | None = "fragmentation_clue" if proof else None
    slack = case.reserved - case.allocated
    sure: Confidence = "high" if slack * 100 < case.reach * SLACK_PERCENT else "medium"
    return "device_full", second, sure, "live blocks fill what this process could have"


def _judge_end(
    snapshot: Snapshot, end: AllocatorState, peak: AllocatorState, pools: list[PoolState], name: str
) -> tuple[dict[str, Figure], Verdict]:
    """No oom event: the state without a failure to judge."""
    allocated, reserved = end.allocated_bytes, end.reserved_bytes
    largest = max((p.largest_inactive_bytes for p in pools if not p.is_private), default=0)
    scattered = sum(p.partly_used_inactive_bytes for p in pools if not p.is_expandable)
    figures = {
        "allocated_bytes": allocated,
        "reserved_total_bytes": reserved,
        "reserved_unallocated_bytes": reserved - allocated - _private(pools),
        "private_pool_bytes": _private(pools),
        "largest_inactive_bytes": largest,
    }
    evidence = [
        f"{format_size(allocated)} allocated of {format_size(reserved)} reserved ({percent(allocated, reserved)}%)",
        f"{format_size(scattered)} inactive in partly used segments that cannot grow, largest free block "
        f"{format_size(largest)}",
    ]
    if name != "end":
        evidence.append(f"at the peak of the trace {format_size(peak.live_bytes)} were live")
    history = any(snapshot.traces)
    verdict = Verdict(
        failure="undecided",
        second="fragmentation_clue" if reserved and scattered * 100 >= reserved * SCATTERED_PERCENT else None,
        confidence="low",
        rule="the snapshot has no oom event" + ("" if history else " and no history: the failing request is not known"),
        evidence=tuple(evidence),
        would_change=("a snapshot with history (torch.cuda.memory._record_memory_history) that holds the oom event",),
        advise=("look_at_snapshot",),
        caution=("after_exception",),
    )
    return {key: Figure(value=size) for key, size in figures.items()}, verdict
