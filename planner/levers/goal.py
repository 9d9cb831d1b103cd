"""One quantity solved for: the largest context, the most requests at once, the smallest card, the fewest cards."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.contract.plan import ServingPlan
from planner.errors import UsageError
from planner.levers.question import ServingQuestion
from planner.levers.relief import fewest_cards, flag_of, smallest_card

if TYPE_CHECKING:
    from planner.training.plan import TrainingPlan  # importing it takes as long as a plan

_WORDS: Final = {
    "context": "max-model-len",
    "length": "max-model-len",
    "max-model-len": "max-model-len",
    "batch": "concurrency",
    "concurrency": "concurrency",
    "users": "concurrency",
    "requests": "concurrency",
    "card": "gpu",
    "gpu": "gpu",
    "gpus": "gpus",
    "cards": "gpus",
}
_GOAL: Final = re.compile(
    r"(?:(?:largest|longest|most|cheapest|smallest|fewest)\s+)?(?P<what>[a-z-]+)"
    r"(?:\s+(?:at|for|with)\s+(?P<users>[0-9][0-9,]*)(?:\s+(?:users?|requests?))?)?"
)
_MOST_REQUESTS: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to solve for: an option's name, "concurrency", "gpu" or "gpus"; and at how many requests at once."""

    what: str
    users: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The solution: the value as text, what to paste, and the plan with it; None and "" when there is none."""

    goal: Goal
    value: str
    flag: str
    plan: ServingPlan | TrainingPlan | None


def parse_goal(text: str) -> Goal:
    """A goal as people say it: "largest context at 16 users", "largest batch", "cheapest card", "fewest GPUs".

    Raises:
        UsageError: none of these.
    """
    match = _GOAL.fullmatch(" ".join(text.lower().split())) if len(text) <= 80 else None
    what = _WORDS.get(match["what"]) if match else None
    if match is None or what is None:
        raise UsageError(
            f"--goal is {text[:60]!r}; expected context, concurrency, card or gpus, such as 'largest context at 16"
            " users'",
            field="goal",
        )
    users = int(match["users"].replace(",", "")) if match["users"] else None
    if users is not None and (what == "concurrency" or not 1 <= users <= _MOST_REQUESTS):
        raise UsageError(
            f"--goal {text[:60]!r}: the number of requests is what this asks for, or is out of range", field="goal"
        )
    return Goal(what=what, users=users)


def solve(question: ServingQuestion, goal: Goal) -> Solved:
    """The best value of the goal's quantity at which the plan counts as fitting, everything else as asked."""
    if goal.users is not None:
        question = question.changed({"concurrency": goal.users})
    if goal.what in ("gpu", "gpus"):
        found = fewest_cards(question) if goal.what == "gpus" else None
        changes = smallest_card(question) if goal.what == "gpu" else found[0] if found else None
        if changes is None:
            return Solved(goal=goal, value="", flag="", plan=None)
        plan = question.ask(changes)
        card = plan.deployment.gpu
        value = card.name if goal.what == "gpu" and card else str(found[1] if found else 1)
        return Solved(goal=goal, value=value, flag=flag_of(changes, question.deployment), plan=plan)
    field = goal.what.replace("-", "_")
    most = _MOST_REQUESTS if field == "concurrency" else question.model.longest_request
    # below the longest request that was stated nothing fits: there the answer is that of the stated length
    least = question.longest_stated if field == "max_model_len" else 1
    number = largest(most, lambda number: question.fits({field: max(number, least)}))
    if not number:
        return Solved(goal=goal, value="", flag="", plan=None)
    return Solved(goal=goal, value=str(number), flag=f"--{goal.what} {number}", plan=question.ask({field: number}))


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest whole number up to `most` that fits, by halving; 0 if 1 does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
