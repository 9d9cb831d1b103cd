"""What one lever does: the difference between two plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from planner.levers.lever import Effect, Lever, Value
from planner.levers.question import ServingQuestion
from planner.serving.plan import ServingPlan

_SCAN_UP_TO: Final = 8


def saving(question: ServingQuestion, before: ServingPlan, after: ServingPlan) -> int:
    """Bytes that `after` needs less than `before` on the fullest rank.

    A changed memory fraction changes no need; it moves bytes of the card between the engine and what lives outside,
    and what it moves to the side that was short counts.
    """
    saved = question.needed_bytes(before) - question.needed_bytes(after)
    moved = after.budget.requested_bytes - before.budget.requested_bytes
    same_card = before.resolved.gpu_memory_bytes == after.resolved.gpu_memory_bytes
    if not saved and same_card and after.utilization != before.utilization:
        return abs(moved)
    return saved


def effects(question: ServingQuestion, before: ServingPlan, levers: Sequence[Lever]) -> tuple[Effect, ...]:
    """Every lever alone: at the mildest value that fits, else at its strongest; those that save nothing left out."""
    found = []
    for lever in levers:
        if lever.kind.name == "gpu-memory-utilization" and not _helps(before, lever):
            continue
        effect = _effect(question, before, lever)
        if effect is not None and (effect.saves_bytes > 0 or effect.fits_alone):
            found.append(effect)
    return tuple(found)


def _helps(before: ServingPlan, lever: Lever) -> bool:
    """The fraction's move goes to the side that is short: down is no help while the cache itself does not fit."""
    present = before.resolved.gpu_memory_utilization
    rises = float(lever.values[-1]) > present
    outside_short = before.outside.free_bytes < 0 or (
        before.startup_error is not None and before.startup_error.kind in ("free_memory", "outside_budget")
    )
    return rises != outside_short if before.verdict == "does_not_fit" else True


def _effect(question: ServingQuestion, before: ServingPlan, lever: Lever) -> Effect | None:
    strongest = lever.set_to(lever.values[-1])
    after = question.try_ask(strongest.changes)
    if after is None:
        return None
    if after.verdict != "fits" or before.verdict == "fits":
        return Effect(
            setting=strongest, saves_bytes=saving(question, before, after), fits_alone=after.verdict == "fits"
        )
    place = first_fitting(lever.values, lambda place: question.fits(lever.set_to(lever.values[place]).changes))
    setting = lever.set_to(lever.values[place])
    plan = question.ask(setting.changes)
    return Effect(setting=setting, saves_bytes=saving(question, before, plan), fits_alone=plan.verdict == "fits")


def first_fitting(values: Sequence[Value], fits: Callable[[int], bool]) -> int:
    """The first place that fits, the last being known to; short lists are scanned, long ones halved.

    Args:
        fits: whether the value at a place fits.
    """
    last = len(values) - 1
    if last < _SCAN_UP_TO:
        return next((place for place in range(last) if fits(place)), last)
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return low
