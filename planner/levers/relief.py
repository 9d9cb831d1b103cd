"""When no lever helps: which term alone is more than the card, and which card or how many would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.contract.component import Component
from planner.engines.vllm.plan import ServingPlan
from planner.engines.vllm.stages import tensor_parallel_sizes
from planner.hardware.gpus import Gpu, load_gpus
from planner.levers.candidates import fraction
from planner.levers.lever import Changes
from planner.levers.question import ServingQuestion

_NODE: Final = 8
_MOST_STAGES: Final = 16
_NOT_FOR_SERVERS: Final = ("laptop", "mod", "apple")
# vLLM docs, GPU installation: compute capability 7.0 or higher
_OLDEST: Final = (7, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A term that alone is more than the whole card, and by how many bytes."""

    name: str
    size_bytes: int
    excess_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """What would do when no set of levers does.

    Args:
        excess: terms that alone exceed the card, largest first; empty if only their sum does.
        sum_excess_bytes: what all terms together need beyond the card.
        card: the changes to the smallest listed card of the same maker, no older, on which the deployment fits; empty
            if it fits none.
        layout: the changes to the fewest of the same card that fit; empty if no number up to 8 x 16 does.
    """

    excess: tuple[Excess, ...]
    sum_excess_bytes: int
    card: Changes
    layout: Changes

    @property
    def gpu(self) -> Gpu | None:
        """The card that would do."""
        found = self.card.get("gpu")
        return found if isinstance(found, Gpu) else None

    @property
    def cards(self) -> int:
        """How many of the same card would do; 0 if no number was found."""
        return cards_of(self.layout) if self.layout else 0


def cards_of(changes: Changes) -> int:
    """How many cards some changes make: tensor times pipeline parallel size, or a trainer's number."""
    cards = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "num_gpus"):
        value = changes.get(name, 1)
        assert isinstance(value, int)
        cards *= value
    return cards


def relief(question: ServingQuestion, plan: ServingPlan) -> Relief:
    """Terms beyond the card, and the card or number of cards that would do."""
    total = plan.resolved.gpu_memory_bytes
    layout = fewest_cards(question) or {}
    card = smallest_card(question, oldest=_capability(question)) or {}
    return Relief(
        excess=excesses(plan.budget.inside + plan.budget.outside, question.cache_wanted_bytes(plan), total),
        sum_excess_bytes=max(0, question.needed_bytes(plan) - total),
        card=card,
        layout=layout,
    )


def excesses(parts: tuple[Component, ...], cache_bytes: int, total: int) -> tuple[Excess, ...]:
    """The terms of which each alone is more than `total` bytes, largest first."""
    sizes = [(part.name, part.best) for part in parts] + [("kv_cache", cache_bytes)]
    over = [Excess(name=name, size_bytes=size, excess_bytes=size - total) for name, size in sizes if size > total]
    return tuple(sorted(over, key=lambda term: -term.size_bytes))


def server_cards(vendor: str) -> list[Gpu]:
    """Listed cards of a maker with known memory, smallest first; of equal memory the faster first."""
    cards = [
        card
        for card in load_gpus()
        if card.vendor == vendor
        and card.reported_memory_bytes is not None
        and not card.unified_memory
        and not any(word in card.id for word in _NOT_FOR_SERVERS)
    ]
    return sorted(cards, key=lambda card: (card.total_memory_bytes, -(card.bandwidth_bytes_per_second or 0)))


def _capability(question: ServingQuestion) -> tuple[int, int]:
    card = question.deployment.gpu
    return (card.capability if card else None) or _OLDEST


def with_room(question: ServingQuestion, changes: Changes) -> Changes | None:
    """The changes if the plan with them fits, with the memory fraction moved where that is what it takes; else None."""
    plan = question.try_ask(changes)
    if plan is None:
        return None
    if plan.verdict == "fits":
        return changes
    lever = next(fraction(plan), None)
    if lever is None or not lever.values:
        return None
    moved = {**changes, **lever.changes(lever.values[-1])}
    return moved if question.fits(moved) else None


def smallest_card(question: ServingQuestion, *, oldest: tuple[int, int] = _OLDEST) -> Changes | None:
    """Changes to the smallest listed card of the same maker on which the deployment fits, otherwise unchanged.

    Args:
        oldest: NVIDIA cards of a lower compute capability are passed over.
    """
    card = question.deployment.gpu
    for other in server_cards(card.vendor if card and card.vendor else "NVIDIA"):
        if other.capability is not None and other.capability < oldest:
            continue
        found = with_room(question, {"gpu": other, "gpu_memory_bytes": None})
        if found is not None:
            return found
    return None


def fewest_cards(question: ServingQuestion) -> Changes | None:
    """Changes to the fewest cards that fit: tensor parallel within a node of eight, pipeline stages beyond."""
    for ways, stages in _layouts(question):
        found = with_room(question, {"tensor_parallel_size": ways, "pipeline_parallel_size": stages})
        if found is not None:
            return found
    return None


def flag_of(changes: Changes) -> str:
    """What to paste for a change of card or number of cards."""
    words = []
    card = changes.get("gpu")
    if isinstance(card, Gpu):
        words.append(f"--gpu {card.id}")
    for name in ("num_gpus", "sharding", "tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization"):
        value = changes.get(name)
        if value is not None and value != 1:
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(words)


def _layouts(question: ServingQuestion) -> Iterator[tuple[int, int]]:
    sizes = tensor_parallel_sizes(question.model, largest=_NODE)
    deepest = min(_MOST_STAGES, len(question.model.spec.layers))
    layouts = [(ways, stages) for ways in sizes for stages in range(1, deepest + 1)]
    yield from sorted(layouts, key=lambda layout: (layout[0] * layout[1], layout[1]))
