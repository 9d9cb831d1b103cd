"""Which cards hold a fine-tune: each row is a plan that the train command repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import PlannerError
from planner.hardware.gpus import Gpu
from planner.model.model import Model
from planner.serving.prices import Prices, price_of
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe

COUNTS: Final = (1, 2, 4, 8, 16)
# what shares weights, gradients and states of a run that says nothing of it
_SHARDING: Final = "zero3"


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTunePick:
    """A card, how many of it, and the plan of the run on them."""

    gpu: Gpu
    cards: int
    plan: TrainingPlan
    usd_per_hour: float | None

    @property
    def total_bytes(self) -> int:
        """Memory of all cards."""
        return self.cards * self.gpu.total_memory_bytes


def fine_tune_picks(
    model: Model,
    recipe: Recipe,
    *,
    cards: Iterable[Gpu],
    max_gpus: int,
    accept: str,
    counts: Mapping[str, int] | None = None,
    prices: Prices | None = None,
) -> Iterator[FineTunePick]:
    """For each card the fewest of it that hold the run, cards of the least memory first.

    A card with less memory than one that was too small under the same count is passed over.
    """
    too_small: dict[int, int] = {}
    for card in sorted(cards, key=lambda one: -one.total_memory_bytes):
        for count in COUNTS:
            if count > min(max_gpus, (counts or {}).get(card.id, max_gpus)):
                break
            if card.total_memory_bytes <= too_small.get(count, 0):
                continue
            plan = _plan(model, recipe, card, count)
            if plan is None:
                continue
            if plan.verdict == "fits" or (accept == "tight" and plan.verdict == "tight"):
                price = price_of(prices or {}, card.id)
                hourly = None if price is None else price.usd_per_hour * count
                yield FineTunePick(gpu=card, cards=count, plan=plan, usd_per_hour=hourly)
                break
            too_small[count] = max(too_small.get(count, 0), card.total_memory_bytes)


def _plan(model: Model, recipe: Recipe, card: Gpu, count: int) -> TrainingPlan | None:
    asked = recipe
    if count != recipe.num_gpus:
        sharding = recipe.sharding or (_SHARDING if count > 1 else None)
        asked = replace(recipe, num_gpus=count, sharding=sharding)
    try:
        return plan_training(model, asked, card)
    except PlannerError:
        return None


def ranked_runs(found: Iterable[FineTunePick]) -> list[FineTunePick]:
    """By price where prices are given, else by total memory and number of cards."""
    return sorted(
        found,
        key=lambda pick: (pick.usd_per_hour is None, pick.usd_per_hour or 0.0, pick.total_bytes, pick.cards),
    )
