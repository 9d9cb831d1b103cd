"""Readings when the program prints the request and nothing else: its size against common cards."""

from __future__ import annotations

from planner.diagnosis.result import FailureClass, Verdict
from planner.diagnosis.rules.large_tensors import shape_sentence
from planner.diagnosis.rules.limits import impossible_size
from planner.diagnosis.rules.thresholds import HUGE_ALONE_BYTES, LARGE_ALONE_BYTES
from planner.units import format_size

_CHANGE = ("the card's capacity and what was free: with them the other rules apply",)


def by_request_alone(
    tried: int | None, *, why: str, second: FailureClass | None = None, advise: tuple[str, ...] = ()
) -> Verdict:
    """The verdict on a request of `tried` bytes (None: not printed) when the capacity is not known.

    12 GiB is a quarter of a 48 GiB card, 4 GiB a quarter of a 16 GiB card. `second` replaces the second reading.
    """
    bug = impossible_size(tried)
    if bug is not None:
        return bug
    if tried is None:
        return Verdict(
            failure="device_full",
            second=second or "other_process",
            confidence="low",
            rule="no figures: the plain meaning of the words",
            evidence=(why,),
            would_change=_CHANGE,
            advise=advise or ("paste_more", "look_at_card"),
        )
    evidence = (f"one request of {format_size(tried)}", why)
    if tried >= HUGE_ALONE_BYTES:
        return Verdict(
            failure="single_huge",
            second=second or "device_full",
            confidence="high" if tried >= 3 * HUGE_ALONE_BYTES else "medium",
            rule="no capacity printed; the request alone is a quarter of a 48 GiB card or more",
            evidence=(*evidence, shape_sentence(tried)),
            would_change=_CHANGE,
            advise=advise or ("shrink_tensor", "attention_kernel"),
        )
    large = tried >= LARGE_ALONE_BYTES
    size = "large, though not for every card" if large else "no large one: what was held before it is the matter"
    return Verdict(
        failure="device_full",
        second=second or ("single_huge" if large else "other_process"),
        confidence="low",
        rule=f"no capacity printed; the request alone is {size}",
        evidence=evidence,
        would_change=_CHANGE,
        advise=advise or ("look_at_card",),
    )
