"""Readings when the program prints the request and nothing else: its size against common cards."""

from __future__ import annotations

from planner.diagnosis.result import FailureClass, Verdict
from planner.diagnosis.rules.large_tensors import shape_sentence
from planner.diagnosis.rules.limits import impossible_size
from planner.diagnosis.rules.thresholds import HUGE_ALONE_BYTES, HUGE_SHARE, LARGE_ALONE_BYTES
from planner.units import format_size

_CHANGE = ("the card's capacity and what was free: with them the other rules apply",)


def by_request_alone(
    tried: int | None,
    *,
    why: str,
    capacity: int | None = None,
    second: FailureClass | None = None,
    advise: tuple[str, ...] = (),
) -> Verdict:
    """The verdict on a request of `tried` bytes (None: not printed) when the text has no capacity.

    12 GiB is a quarter of a 48 GiB card, 4 GiB a quarter of a 16 GiB card; with the capacity stated by the user, a
    quarter of that. `second` replaces the second reading.
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
            advise=advise,
        )
    if capacity is not None and tried * HUGE_SHARE >= capacity:
        return _of_stated(tried, capacity, why, second, advise)
    evidence = (f"one request of {format_size(tried)}", why)
    if capacity is None and tried >= HUGE_ALONE_BYTES:
        return Verdict(
            failure="single_huge",
            second=second or "device_full",
            confidence="high" if tried >= 3 * HUGE_ALONE_BYTES else "medium",
            rule="no capacity printed; the request alone is a quarter of a 48 GiB card or more",
            evidence=(*evidence, shape_sentence(tried)),
            would_change=_CHANGE,
            advise=advise,
        )
    large = capacity is None and tried >= LARGE_ALONE_BYTES
    size = "large, though not for every card" if large else "no large one: what was held before it is the matter"
    return Verdict(
        failure="device_full",
        second=second or ("single_huge" if large else "other_process"),
        confidence="low",
        rule=f"no capacity printed; the request alone is {size}",
        evidence=evidence,
        would_change=_CHANGE,
        advise=advise,
    )


def _of_stated(tried: int, capacity: int, why: str, second: FailureClass | None, advise: tuple[str, ...]) -> Verdict:
    """A request of a quarter of the stated card, or more than all of it."""
    whole = tried >= capacity
    return Verdict(
        failure="single_huge",
        second=second or (None if whole else "device_full"),
        confidence="high" if whole else "medium",
        rule="the request is larger than the stated card"
        if whole
        else "the request is a quarter of the stated card or more",
        evidence=(
            f"one request of {format_size(tried)} on a card of {format_size(capacity)}",
            why,
            shape_sentence(tried),
        ),
        would_change=("a smaller request",),
        advise=advise,
    )
