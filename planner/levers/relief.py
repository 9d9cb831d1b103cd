"""When no lever helps: which term alone is more than the card, and which card or how many would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from planner.contract.component import Component
from planner.contract.inputs import inputs_of, spelled_out
from planner.contract.lever import Changes
from planner.contract.plan import ServingPlan
from planner.hardware.gpus import Gpu, load_gpus
from planner.levers.question import ServingQuestion

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
        layout: the changes to the fewest of the same card that fit; empty if no layout of the engine does.
        cards: how many cards that is; 0 if none was found.
        card_flag, layout_flag: what to paste for them.
    """

    excess: tuple[Excess, ...]
    sum_excess_bytes: int
    card: Changes
    layout: Changes
    cards: int
    card_flag: str
    layout_flag: str

    @property
    def gpu(self) -> Gpu | None:
        """The card that would do."""
        found = self.card.get("gpu")
        return found if isinstance(found, Gpu) else None


def relief(question: ServingQuestion, plan: ServingPlan) -> Relief:
    """Terms beyond the card, and the card or number of cards that would do."""
    device = plan.devices[0]
    layout, cards = fewest_cards(question) or ({}, 0)
    card = smallest_card(question, oldest=_capability(question)) or {}
    return Relief(
        excess=excesses(device.components, question.cache_wanted_bytes(plan), device.total_bytes),
        sum_excess_bytes=max(0, question.needed_bytes(plan) - device.total_bytes),
        card=card,
        layout=layout,
        cards=cards,
        card_flag=flag_of(card, question.deployment),
        layout_flag=flag_of(layout, question.deployment),
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
    """The changes if the plan with them fits, or does once a lever that costs nothing is pulled; else None."""
    plan = question.try_ask(changes)
    if plan is None:
        return None
    if question.accepts(plan):
        return changes
    for lever in question.engine.levers(plan):
        if lever.kind.cost != "nothing":
            break
        if lever.values:
            moved = {**changes, **lever.changes(lever.values[-1])}
            return moved if question.fits(moved) else None
    return None


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


def fewest_cards(question: ServingQuestion) -> tuple[Changes, int] | None:
    """Changes to the fewest cards that fit, and how many they are."""
    for layout in question.engine.layouts(question.model, question.deployment):
        found = with_room(question, layout.changes)
        if found is not None:
            return found, layout.cards
    return None


def flag_of(changes: Changes, asked: Any) -> str:
    """What to paste so that a command line with these inputs gets the changes: every one that differs.

    Args:
        asked: the record that the command line describes.
    """
    words: list[str] = []
    for one in inputs_of(type(asked)):
        if one.name not in changes or changes[one.name] == getattr(asked, one.name):
            continue
        value = changes[one.name]
        if isinstance(value, Gpu):
            words += ["--gpu", value.id]
        elif value is not None:
            words += spelled_out(one, value)
    return " ".join(words)
