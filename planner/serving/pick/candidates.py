"""Cards, counts and formats that hold a model: every row is a plan that the serve command repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.contract.engine import Engine, Layout, command_line
from planner.contract.plan import ServingPlan
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.hardware.gpus import Gpu, load_gpus
from planner.memory.cache.kv_cache import sequence_cost
from planner.memory.quality.evidence import has_evidence
from planner.memory.work import Work
from planner.model.model import Model
from planner.model.tensor import Role
from planner.serving.prices import Prices, price_of

# Laptops, modified cards and machines with unified memory are no cards to rent or to buy one of; they can be owned.
_LEFT_OUT: Final = ("laptop", "mod", "mobile")
# vLLM docs, GPU installation: compute capability 7.0 or higher
_OLDEST: Final = (7, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """One way to run a model.

    Args:
        cards: how many of the card.
        quantization: the format's name, None as stored.
        proven: enough published rows of this size class stand behind the format (a checkpoint as stored needs none).
        usd_per_hour: of all cards; None without a price.
    """

    gpu: Gpu
    cards: int
    quantization: str | None
    plan: ServingPlan
    proven: bool
    usd_per_hour: float | None

    @property
    def total_bytes(self) -> int:
        """Memory of all cards."""
        return self.cards * self.gpu.total_memory_bytes

    @property
    def weight_bits(self) -> float:
        """Bits that a weight takes, over all cards."""
        device = self.plan.devices[0]
        weights = sum(part.best for part in device.components if part.name == "weights")
        return 8 * weights * device.count / max(self.plan.model.parameters, 1)

    @property
    def command(self) -> str:
        """The engine's command line."""
        return command_line(self.plan)


def candidate_cards(vendor: str | None, owned: Sequence[Gpu] = ()) -> list[Gpu]:
    """The cards that are looked at: those owned, else every listed card of the makers that serve models."""
    if owned:
        return list(owned)
    makers = (vendor.lower(),) if vendor else ("nvidia", "amd")
    return [
        card
        for card in load_gpus()
        if card.vendor.lower() in makers
        and card.reported_memory_bytes is not None
        and not card.unified_memory
        and not any(word in card.id for word in _LEFT_OUT)
        and (card.capability is None or card.capability >= _OLDEST)
    ]


def picks(
    engine: Engine,
    model: Model,
    base: Any,
    workload: Workload,
    *,
    cards: Iterable[Gpu],
    formats: Sequence[str | None] | None = None,
    max_gpus: int,
    counts: dict[str, int] | None = None,
    prices: Prices | None = None,
) -> Iterator[Pick]:
    """For each card and format the fewest GPUs that hold the model, if any number up to `max_gpus` does.

    Args:
        base: the deployment without card, format and layout.
        formats: to try; None: as stored, and what people compare on the card where the checkpoint is plain.
        counts: how many of each card are there, where that is less (by card id).
    """
    layouts = [layout for layout in engine.layouts(model, base) if layout.cards <= max_gpus]
    needs: dict[tuple[str | None, int, int], int] = {}
    stored = model.spec.quantization_config is not None or bool(model.stored)
    for card in cards:
        most = min(max_gpus, (counts or {}).get(card.id, max_gpus))
        usual = () if stored else tuple(name for name, _ in engine.usual_formats(card))
        for quantization in (None, *usual) if formats is None else formats:
            found = _fewest(engine, model, base, workload, card, quantization, layouts, most, needs)
            if found is None:
                continue
            layout, plan = found
            price = price_of(prices or {}, card.id)
            yield Pick(
                gpu=card,
                cards=layout.cards,
                quantization=quantization,
                plan=plan,
                proven=quantization is None or has_evidence(quantization, "weights", model.parameters),
                usd_per_hour=None if price is None else price.usd_per_hour * layout.cards,
            )


def _fewest(
    engine: Engine,
    model: Model,
    base: Any,
    workload: Workload,
    card: Gpu,
    quantization: str | None,
    layouts: Sequence[Layout],
    most: int,
    needs: dict[tuple[str | None, int, int], int],
) -> tuple[Layout, ServingPlan] | None:
    """The first layout that is accepted.

    Args:
        needs: bytes that a format and layout need on any card; a card that has less is passed over.
    """
    axis = engine.axes.quantization
    for layout in layouts:
        if layout.cards > most:
            return None
        key = (quantization, layout.cards, layout.stages)
        if needs.get(key, 0) > card.total_memory_bytes:
            continue
        changes = (
            dict(engine.axes.on_cards) | dict(layout.changes) | ({axis: quantization} if axis and quantization else {})
        )
        try:
            plan = engine.plan(model, replace(base, gpu=card, gpu_memory_bytes=None, **changes), workload)
        except PlannerError:
            continue
        if plan.accepted:
            return layout, plan
        if plan.verdict == "does_not_fit" and key not in needs:
            needs[key] = _least_bytes(plan)
        if plan.verdict == "refused" and plan.startup_error is not None and plan.startup_error.kind == "device":
            return None
    return None


def _least_bytes(plan: ServingPlan) -> int:
    """Weights and the asked requests' cache on the fullest card: what no card can do without, whatever its driver,
    graphs and activations take. 0 where the engine does not say."""
    work = getattr(plan, "work", None)
    if not isinstance(work, Work):
        return 0
    length = plan.workload.admission[1] if plan.workload.admission else plan.max_model_len
    each = max(plan.workload.concurrency, 1)
    return max(
        sum(size for role, size in stage.weights if role is not Role.EMBEDDING)
        + each * sequence_cost(stage.caches, length).total_bytes
        for stage in work.stages
    )


def ranked(found: Iterable[Pick]) -> list[Pick]:
    """By price where prices are given, else by total memory and number of cards; the better format first."""
    return sorted(
        found,
        key=lambda pick: (
            pick.usd_per_hour is None,
            pick.usd_per_hour or 0.0,
            pick.total_bytes,
            pick.cards,
            not pick.proven,
            -pick.weight_bits,
        ),
    )


def best_format_each(found: Iterable[Pick]) -> list[Pick]:
    """One pick for each card and count: the most bits a weight among formats with evidence; ranked."""
    best: dict[tuple[str, int], Pick] = {}
    for pick in found:
        key = (pick.gpu.id, pick.cards)
        other = best.get(key)
        if other is None or (pick.proven, pick.weight_bits) > (other.proven, other.weight_bits):
            best[key] = pick
    return ranked(best.values())
