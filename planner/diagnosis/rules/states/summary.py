"""What an allocator's own summary says by itself."""

from __future__ import annotations

from planner.diagnosis.result import FailureClass, Message, Verdict
from planner.diagnosis.rules.thresholds import ALLOCATED_PERCENT, percent
from planner.units import format_size

# Part of the reserved bytes in free pieces of split blocks from which fragmentation is worth a look (25%).
_NON_RELEASABLE_PERCENT = 25


def judge_summary(message: Message) -> Verdict:
    """What an allocator's summary says by itself: it knows neither the capacity nor the request."""
    ooms, retries = message.bytes_of("num_ooms"), message.bytes_of("num_alloc_retries") or 0
    allocated = message.bytes_of("peak_allocated_bytes") or message.bytes_of("allocated_bytes") or 0
    reserved = message.bytes_of("peak_reserved_total_bytes") or message.bytes_of("reserved_total_bytes") or 0
    split = message.bytes_of("non_releasable_bytes") or 0
    current = message.bytes_of("reserved_total_bytes") or 0
    evidence = [
        f"peak allocated {format_size(allocated)} of peak reserved {format_size(reserved)} "
        f"({percent(allocated, reserved)}%)",
        f"{format_size(split)} in free pieces of split blocks now ({percent(split, current)}% of reserved)",
    ]
    if split == 0 and ooms:
        evidence.append("expandable segments never count there, so 0 does not exclude fragmentation")
    if retries:
        evidence.append(f"{retries} times the cache was given back to find room: memory pressure")
    failure: FailureClass
    second: FailureClass | None = None
    if ooms == 0:
        failure, rule = "not_a_failure", "this allocator counted no out-of-memory error"
        second = "device_full" if retries else None
    elif reserved == 0:
        failure, rule = "undecided", "the table is empty: cudaMallocAsync keeps no such statistics"
    elif split * 100 >= current * _NON_RELEASABLE_PERCENT and current:
        failure, rule = "fragmentation_clue", f"non-releasable memory is {_NON_RELEASABLE_PERCENT}% of reserved or more"
        second = "device_full"
    elif allocated * 100 >= reserved * ALLOCATED_PERCENT:
        failure, rule = "device_full", f"{ALLOCATED_PERCENT}% or more of what was reserved was allocated at the peak"
    else:
        failure, rule = "undecided", "neither nearly all allocated nor much in split blocks"
        second = "fragmentation_clue"
    return Verdict(
        failure=failure,
        second=second,
        confidence="low" if failure != "not_a_failure" else "medium",
        rule=rule,
        evidence=tuple(evidence),
        would_change=("the capacity and the request: the error's own message has both",),
        advise=("look_at_snapshot",) if failure in ("fragmentation_clue", "undecided") else (),
        caution=("after_exception",),
    )
