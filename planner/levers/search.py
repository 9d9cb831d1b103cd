"""The smallest sets of levers that make a plan fit, cheapest first, none dominated by another.

A set is tried with every lever at its strongest value. If that fits, the values are eased, the costliest lever
first, to the mildest that still fit. A set stays only if leaving any of its settings out makes the plan not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from planner.levers.candidates import fraction
from planner.levers.effect import first_fitting, saving
from planner.levers.lever import COSTS, Changes, Lever, LeverSet, Setting
from planner.levers.question import ServingQuestion
from planner.serving.command import command_line
from planner.serving.plan import ServingPlan

MOST_PLANS: Final = 5
# singles, pairs and triples always; more only while there are fewer sets than can be shown
_USUAL_SIZE: Final = 3
_LARGEST_SIZE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A set that fits, with what each of its levers was eased to: its place among the lever's values."""

    levers: tuple[Lever, ...]
    places: tuple[int, ...]
    settings: tuple[Setting, ...]
    plan: ServingPlan


def merged(settings: Sequence[Setting]) -> dict[str, object]:
    """The inputs that these settings change, together."""
    changes: dict[str, object] = {}
    for setting in settings:
        changes |= setting.changes
    return changes


def fitting_sets(question: ServingQuestion, before: ServingPlan, levers: Sequence[Lever]) -> tuple[LeverSet, ...]:
    """At most five sets that fit, cheapest first; none if no five levers together do.

    Args:
        before: the plan as asked.
        levers: the candidates, cheapest first.
    """
    found: list[Found] = []
    small: list[frozenset[str]] = []
    for size in range(1, _LARGEST_SIZE + 1):
        if size > _USUAL_SIZE and len(_undominated(found)) >= MOST_PLANS:
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


def _undominated(found: Sequence[Found]) -> list[Found]:
    """The sets that no other beats, cheapest first; of sets that cost the same in everything the first."""
    kept: list[Found] = []
    for one in sorted(found, key=_cost_order):
        burden = _burden(one)
        if not any(_dominates(_burden(other), burden) for other in found if other is not one) and not any(
            _burden(other) == burden for other in kept
        ):
            kept.append(one)
    return kept


def _as_set(question: ServingQuestion, before: ServingPlan, found: Found) -> LeverSet:
    costs = {setting.kind.cost for setting in found.settings}
    worst = sorted(costs - {"nothing"}, key=COSTS.index) or ["nothing"]
    return LeverSet(
        settings=found.settings,
        verdict=found.plan.verdict,
        cost=", ".join(worst),
        saves_bytes=saving(question, before, found.plan),
        command=command_line(found.plan),
    )


def _eased(question: ServingQuestion, levers: tuple[Lever, ...]) -> Found | None:
    """The set at its mildest values that fit, or None if it does not fit or one of its levers is not needed."""
    levers = _with_room(question, levers)
    if any(not lever.values for lever in levers):
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
    if plan.verdict != "fits":
        return None
    return Found(levers=levers, places=tuple(places[lever.kind.name] for lever in levers), settings=settings, plan=plan)


def _with_room(question: ServingQuestion, levers: tuple[Lever, ...]) -> tuple[Lever, ...]:
    """The memory fraction's values depend on what the other levers leave outside it."""
    if len(levers) == 1 or all(lever.kind.name != "gpu-memory-utilization" for lever in levers):
        return levers
    others = [lever for lever in levers if lever.kind.name != "gpu-memory-utilization"]
    strongest = merged([lever.set_to(lever.values[-1]) for lever in others])
    plan = question.try_ask(strongest)
    if plan is None:
        return levers
    renewed = next(fraction(plan), None)
    return tuple(renewed if renewed and lever.kind.name == renewed.kind.name else lever for lever in levers)


def _changes(levers: Sequence[Lever], places: Mapping[str, int]) -> Changes:
    return merged([lever.set_to(lever.values[places[lever.kind.name]]) for lever in levers])


def _mildest(question: ServingQuestion, levers: Sequence[Lever], places: Mapping[str, int], lever: Lever) -> int:
    """The first place among the lever's values at which the set fits, the others staying where they are."""

    def fits(place: int) -> bool:
        return question.fits(_changes(levers, {**places, lever.kind.name: place}))

    return first_fitting(lever.values, fits)


def _burden(found: Found) -> dict[str, int]:
    """How far each thing that has a cost is given up, in its own steps; settings that cost nothing are counted."""
    burden: dict[str, int] = {"settings": len(found.levers)}
    for lever, place in zip(found.levers, found.places, strict=True):
        kind = lever.kind
        if kind.cost in ("cards", "nothing"):
            continue
        steps = place + 1 if kind.group in ("length", "offload", "tokens") else kind.rank
        if kind.group == "graphs":
            steps = 1 if kind.name == "max-cudagraph-capture-size" else 2
        burden[kind.name if kind.group == "length" else kind.group] = steps
    asked = found.plan.resolved.asked
    # stages wait for each other: fewer cards in a pipeline are not simply cheaper than more that work together
    burden["stages"] = asked.pipeline_parallel_size - 1
    burden["cards"] = asked.tensor_parallel_size * asked.pipeline_parallel_size * asked.data_parallel_size
    return burden


def _dominates(first: Mapping[str, int], second: Mapping[str, int]) -> bool:
    """The first costs no more in anything, and less in something."""
    pairs = [(first.get(name, 0), second.get(name, 0)) for name in first.keys() | second.keys()]
    return all(left <= right for left, right in pairs) and any(left < right for left, right in pairs)


def _cost_order(found: Found) -> tuple[int, int, int, int]:
    ranks = [lever.kind.rank for lever in found.levers]
    return max(ranks), len(ranks), sum(ranks), sum(found.places)
