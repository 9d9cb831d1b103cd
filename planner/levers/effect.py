"""What one lever does: the difference between two plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from planner.contract.lever import Effect, Lever, Plan, Question, Value

_SCAN_UP_TO: Final = 8


def effects(question: Question[Plan], before: Plan, levers: Sequence[Lever]) -> tuple[Effect, ...]:
    """Every lever alone: at the mildest value that fits, else at its strongest; those that save nothing left out."""
    found = []
    for lever in levers:
        if lever.helps is not None and not lever.helps(before):
            continue
        effect = _effect(question, before, lever)
        if effect is not None and (effect.saves_bytes > 0 or effect.fits_alone):
            found.append(effect)
    return tuple(found)


def _effect(question: Question[Plan], before: Plan, lever: Lever) -> Effect | None:
    setting = lever.set_to(lever.values[-1])
    after = question.try_ask(setting.changes)
    if after is None:
        return None
    if question.accepts(after) and not question.accepts(before):
        place = first_fitting(lever.values, lambda place: question.fits(lever.set_to(lever.values[place]).changes))
        setting = lever.set_to(lever.values[place])
        after = question.ask(setting.changes)
    saved = question.saving(before, after)
    return Effect(
        setting=setting, saves_bytes=saved, verdict=question.verdict(after), fits_alone=question.accepts(after)
    )


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
