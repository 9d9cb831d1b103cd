"""What to change about a serving plan: single levers, sets that fit, and which hardware would do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from planner.contract.lever import Effect, LeverSet, kept_in
from planner.contract.plan import ServingPlan
from planner.levers.effect import effects
from planner.levers.goal import Goal, Solved, solve
from planner.levers.question import ServingQuestion
from planner.levers.relief import Relief, relief
from planner.levers.search import fitting_sets
from planner.units import format_size

EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_ALSO_KEPT = {"max-num-images": "limit_mm_per_prompt", "gpus": "tensor_parallel_size", "context": "max_model_len"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to change.

    Args:
        levers: every lever alone, cheapest first.
        plans: at most five sets that fit, cheapest first; empty when the plan fits as asked.
        relief: terms beyond the card, and the card or number of cards that would do, when the plan does not fit.
        solved: the goal's solution, when one was asked for.
        notes: what a reader should know about the advice.
    """

    levers: tuple[Effect, ...]
    plans: tuple[LeverSet, ...]
    relief: Relief | None
    solved: Solved | None
    notes: tuple[str, ...]


def kept_inputs(question: ServingQuestion, names: Iterable[str]) -> frozenset[str]:
    """The inputs that `serve --keep` forbids touching, from their option names.

    Raises:
        UsageError: a name that no lever changes; names the nearest.
    """
    return kept_in(question.engine.lever_table, names, also=_ALSO_KEPT)


def advise(
    question: ServingQuestion, plan: ServingPlan, *, keep: frozenset[str] = frozenset(), goal: Goal | None = None
) -> Advice:
    """Levers, sets and relief for a plan.

    Args:
        plan: the plan of the question as asked.
        keep: inputs that must stay as they are.
        goal: a quantity to solve for besides.
    """
    question = question.settled(plan)
    levers = tuple(
        lever for lever in question.engine.levers(plan) if lever.kind.input not in keep and len(lever.values)
    )
    single = effects(question, plan, levers)
    sets: tuple[LeverSet, ...] = ()
    beyond = None
    if not question.accepts(plan):
        sets = fitting_sets(question, plan, levers)
    error = plan.startup_error
    if plan.shortfall_bytes or (error is not None and error.kind != "max_model_len"):  # memory is short
        beyond = relief(question, plan)
    return Advice(
        levers=single,
        plans=sets,
        relief=beyond,
        solved=solve(question, goal) if goal is not None else None,
        notes=_notes(question, plan),
    )


# What stops the engine before the cache is looked at, or after it was found large enough.
_NOT_THE_CACHE: Final = ("max_model_len", "free_memory", "weights", "outside_budget")


def _lacks_cache(plan: ServingPlan, wanted_bytes: int) -> bool:
    """The cache wanted is what does not fit, all terms at their high end where the plan is tight."""
    error = plan.startup_error
    if error is not None and error.kind in _NOT_THE_CACHE:
        return False
    return wanted_bytes > plan.cache.reserved_bytes


def _notes(question: ServingQuestion, plan: ServingPlan) -> tuple[str, ...]:
    if plan.verdict == "fits":
        return ()
    weights = sum(part.best for part in plan.devices[0].components if part.name == "weights")
    wanted = question.cache_wanted_bytes(plan)
    notes = []
    error = plan.startup_error
    if plan.verdict == "tight" or (error is not None and error.kind == "outside_budget"):
        notes.append(
            f"free besides: {EXPANDABLE}, against fragmentation after start-up; a serving plan has no term for it, so"
            " nothing is claimed"
        )
    if wanted > weights and _lacks_cache(plan, wanted):
        notes.append(
            f"the KV cache is the problem ({format_size(wanted)} wanted, weights {format_size(weights)}):"
            " quantised weights do nothing for it, only leave more of the card to it"
        )
    if plan.model.spec.quantization_config is not None or plan.model.stored:
        notes.append("the checkpoint is quantised already: no other weight format is proposed")
    return tuple(notes)
