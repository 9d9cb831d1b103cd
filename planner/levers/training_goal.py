"""One quantity of a fine-tune solved for: the largest batch, sequence or rank, the smallest card, the fewest GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.contract.lever import Changes
from planner.errors import UsageError
from planner.levers.goal import Goal, Solved, largest
from planner.levers.relief import server_cards
from planner.levers.training import TrainingQuestion, spreads
from planner.training.recipe import resolve

_WORDS: Final = {
    "batch": "per-device-train-batch-size",
    "per-device-train-batch-size": "per-device-train-batch-size",
    "sequence": "max-seq-length",
    "length": "max-seq-length",
    "context": "max-seq-length",
    "max-seq-length": "max-seq-length",
    "rank": "lora-rank",
    "lora-rank": "lora-rank",
    "card": "gpu",
    "gpu": "gpu",
    "gpus": "gpus",
    "cards": "gpus",
}
_GOAL: Final = re.compile(r"(?:(?:largest|longest|highest|most|cheapest|smallest|fewest)\s+)?(?P<what>[a-z-]+)")
_MOST: Final[Mapping[str, int]] = {"per-device-train-batch-size": 4096, "lora-rank": 4096, "max-seq-length": 1 << 24}


def parse_training_goal(text: str) -> Goal:
    """A goal as people say it: "largest batch", "longest sequence", "highest rank", "cheapest card", "fewest GPUs".

    Raises:
        UsageError: none of these.
    """
    match = _GOAL.fullmatch(" ".join(text.lower().split())) if len(text) <= 80 else None
    what = _WORDS.get(match["what"]) if match else None
    if what is None:
        raise UsageError(
            f"--goal is {text[:60]!r}; expected batch, sequence, rank, card or gpus, such as 'largest batch'",
            field="goal",
        )
    return Goal(what=what)


def solve_training(question: TrainingQuestion, goal: Goal) -> Solved:
    """The best value of the goal's quantity at which the fine-tune counts as fitting, all else as asked.

    Raises:
        UsageError: a rank is asked of a recipe without adapters.
    """
    if goal.what in ("gpu", "gpus"):
        found = _card(question) if goal.what == "gpu" else _count(question)
        if found is None:
            return Solved(goal=goal, value="", flag="", plan=None)
        plan = question.ask(found)
        value = plan.gpu.name if goal.what == "gpu" else str(plan.recipe.num_gpus)
        return Solved(goal=goal, value=value, flag=_flag(goal, found), plan=plan)
    field = goal.what.replace("-", "_")
    if field == "lora_rank" and not question.recipe.adapters:
        raise UsageError(f"--goal rank: --method {question.recipe.method} has no adapters", field="goal")
    most = _MOST[goal.what]
    if field == "max_seq_length":
        most = question.model.spec.max_position_embeddings or most
    number = largest(most, lambda number: question.fits({field: number}))
    if not number:
        return Solved(goal=goal, value="", flag="", plan=None)
    return Solved(goal=goal, value=str(number), flag=f"--{goal.what} {number}", plan=question.ask({field: number}))


def _card(question: TrainingQuestion) -> Changes | None:
    vendor = question.gpu.vendor if question.gpu else None
    cards = server_cards(vendor or "NVIDIA")
    return next(({"gpu": card} for card in cards if question.fits({"gpu": card})), None)


def _count(question: TrainingQuestion) -> Changes | None:
    one: Changes = {"num_gpus": 1, "sharding": None}
    return next((changes for changes in (one, *spreads(resolve(question.recipe), 1)) if question.fits(changes)), None)


def _flag(goal: Goal, changes: Changes) -> str:
    if goal.what == "gpu":
        card = changes["gpu"]
        return f"--gpu {getattr(card, 'id', card)}"
    sharding = changes["sharding"]
    return f"--num-gpus {changes['num_gpus']}" + (f" --sharding {sharding}" if sharding else "")
