"""The smallest sets of levers that make a plan fit, cheapest first, none dominated by another.

A set is tried with every lever at its strongest value. If that fits, the values are eased, the costliest lever
first, to the mildest that still fit. A set stays only if leaving any of its settings out makes the plan not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Generic

from planner.contract.lever import COSTS, Changes, Lever, LeverSet, Plan, Question, Setting
from planner.levers.effect import first_fitting

MOST_PLANS: Final = 5
# singles, pairs and triples always; four while there are fewer sets than can be shown; five only when nothing fits
_USUAL_SIZE: Final = 3
_LARGEST_SIZE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[Plan]):
    """A set that fits, with what each of its levers was eased to: its place among the lever's values.

    Args:
        burden: how far each thing that has a cost is given up, in its own steps.
    """

    levers: tuple[Lever, ...]
    places: tuple[int, ...]
    settings: tuple[Setting, ...]
    plan: Plan
    burden: Mapping[str, int]


def merged(settings: Sequence[Setting]) -> dict[str, object]:
    """The inputs that these settings change, together."""
    changes: dict[str, object] = {}
    for setting in settings:
        changes |= setting.changes
    return changes


def fitting_sets(question: Question[Plan], before: Plan, levers: Sequence[Lever]) -> tuple[LeverSet, ...]:
    """At most five sets that fit, cheapest first; none if no five levers together do.

    Args:
        before: the plan as asked.
        levers: the candidates, cheapest first.
    """
    found: list[Found[Plan]] = []
    small: list[frozenset[str]] = []
    for size in range(1, _LARGEST_SIZE + 1):
        if size > _USUAL_SIZE and len(_undominated(found)) >= (MOST_PLANS if size < _LARGEST_SIZE else 1):
            break
        for chosen in combinations(levers, size):
            names = frozenset(lever.kind.name for lever in chosen)
            if len({lever.kind.group for lever in chosen}) < size or any(smaller <= names for smaller in small):
                continue
            result = _eased(question, chosen)
            if result is not None:
                small.append(names)
                found.append(result)
    return tuple(_as_set(question, before, one) for one in _undominated(found)[:MOST_PLANS])


def _undominated(found: Sequence[Found[Plan]]) -> list[Found[Plan]]:
    """The sets that no other beats, cheapest first; of sets that cost the same in everything the first."""
    kept: list[Found[Plan]] = []
    for one in sorted(found, key=_cost_order):
        beaten = any(_dominates(other.burden, one.burden) for other in found if other is not one)
        if not beaten and all(other.burden != one.burden for other in kept):
            kept.append(one)
    return kept


def _as_set(question: Question[Plan], before: Plan, found: Found[Plan]) -> LeverSet:
    costs = {setting.kind.cost for setting in found.settings}
    worst = sorted(costs - {"nothing"}, key=COSTS.index) or ["nothing"]
    return LeverSet(
        settings=found.settings,
        verdict=question.verdict(found.plan),
        cost=", ".join(worst),
        saves_bytes=question.saving(before, found.plan),
        command=question.command(found.plan),
    )


def _eased(question: Question[Plan], levers: tuple[Lever, ...]) -> Found[Plan] | None:
    """The set at its mildest values that fit, or None if it does not fit or one of its levers is not needed."""
    strongest = [lever.set_to(lever.values[-1]) for lever in levers]
    levers = tuple(
        _renewed(question, lever, merged(strongest[:index] + strongest[index + 1 :]))
        for index, lever in enumerate(levers)
    )
    if not all(len(lever.values) for lever in levers):
        return None
    places = {lever.kind.name: len(lever.values) - 1 for lever in levers}
    if not question.fits(_changes(levers, places)):
        return None
    for lever in sorted(levers, key=lambda lever: lever.kind.rank, reverse=True):
        places[lever.kind.name] = _mildest(question, levers, places, lever)
    settings = tuple(lever.set_to(lever.values[places[lever.kind.name]]) for lever in levers)
    for index in range(len(settings)):
        if question.fits(merged(settings[:index] + settings[index + 1 :])):
            return None
    plan = question.ask(merged(settings))
    if not question.accepts(plan):
        return None
    order = tuple(places[lever.kind.name] for lever in levers)
    burden = _burden(levers, order, question.cards(plan))
    return Found(levers=levers, places=order, settings=settings, plan=plan, burden=burden)


def _renewed(question: Question[Plan], lever: Lever, changes: Changes) -> Lever:
    """The lever with its values as they are after other changes."""
    plan = question.try_ask(changes) if lever.renew is not None else None
    if plan is None or lever.renew is None:
        return lever
    return lever.renew(plan) or lever


def _changes(levers: Sequence[Lever], places: Mapping[str, int]) -> Changes:
    return merged([lever.set_to(lever.values[places[lever.kind.name]]) for lever in levers])


def _mildest(question: Question[Plan], levers: Sequence[Lever], places: Mapping[str, int], lever: Lever) -> int:
    """The first place among the lever's values at which the set fits, the others staying where they are."""

    def fits(place: int) -> bool:
        return question.fits(_changes(levers, {**places, lever.kind.name: place}))

    return first_fitting(lever.values, fits)


def _burden(levers: Sequence[Lever], places: Sequence[int], cards: tuple[int, int]) -> dict[str, int]:
    """What is given up of each thing, in its own steps; settings that cost nothing are only counted.

    Stages of a pipeline wait for each other, so fewer cards in a pipeline are not simply cheaper than more cards
    that work together.
    """
    burden = {"settings": len(levers), "cards": cards[0], "stages": cards[1]}
    for lever, place in zip(levers, places, strict=True):
        kind = lever.kind
        if kind.cost not in ("cards", "nothing"):
            burden[kind.name if kind.group == "length" else kind.group] = kind.step + place + 1
    return burden


def _dominates(first: Mapping[str, int], second: Mapping[str, int]) -> bool:
    """The first costs no more in anything, and less in something."""
    pairs = [(first.get(name, 0), second.get(name, 0)) for name in first.keys() | second.keys()]
    return all(left <= right for left, right in pairs) and any(left < right for left, right in pairs)


def _cost_order(found: Found[Plan]) -> tuple[int, int, int, int]:
    ranks = [lever.kind.rank for lever in found.levers]
    return max(ranks), len(ranks), sum(ranks), sum(found.places)
