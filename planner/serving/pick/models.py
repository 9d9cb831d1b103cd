"""Which models run on the cards that are there: every bundled model, in the best format with evidence that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.contract.engine import Engine
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.hardware.spelled import Cards
from planner.memory.quality.evidence import has_evidence
from planner.model.load import load_model
from planner.model.model import Model
from planner.serving.pick.candidates import Pick


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which models are asked for, from the config alone.

    Args:
        task: "generate", "embed" or "any"; family: a word of model_type or architecture.
        min_context: tokens that one request must have room for; min_parameters: weights at least.
    """

    task: str = "generate"
    family: str | None = None
    min_context: int = 0
    min_parameters: int = 0

    def takes(self, model: Model) -> bool:
        """Whether a model is asked for."""
        kind = "generate" if model.spec.decoder else "embed"
        words = f"{model.spec.architecture} {model.id}".lower()
        return (
            self.task in ("any", kind)
            and (self.family is None or self.family.lower() in words)
            and model.longest_request >= self.min_context
            and model.parameters >= self.min_parameters
        )


def models_that_run(
    engine: Engine,
    base: Any,
    workload: Workload,
    *,
    names: Iterable[str],
    cards: Cards,
    formats: Sequence[tuple[str, float]],
    wanted: Wanted,
    length: int,
) -> Iterator[Pick]:
    """Every model that runs on these cards, as its best pick.

    Args:
        base: the deployment without card, layout, format and length.
        formats: exports to try for plain checkpoints, the most bits first.
        length: max_model_len, or less where the model has fewer positions.
    """
    for name in names:
        try:
            model = load_model(name)
            if not wanted.takes(model):
                continue
            found = _best(engine, model, base, workload, cards, formats, max(length, wanted.min_context))
        except PlannerError:
            continue
        if found is not None:
            yield found
        model.memo.clear()


def _best(
    engine: Engine,
    model: Model,
    base: Any,
    workload: Workload,
    cards: Cards,
    formats: Sequence[tuple[str, float]],
    length: int,
) -> Pick | None:
    layout = next((one for one in engine.layouts(model, base) if one.cards == cards.count), None)
    if layout is None:
        return None
    stored = model.spec.quantization_config is not None or bool(model.stored)
    total_bits = 8 * cards.count * cards.gpu.total_memory_bytes
    # most bits first: the checkpoint as stored, then exports with evidence; what cannot fit by its bits is not planned
    tried: list[str | None] = [None] if stored or 16 * model.parameters <= total_bits else []
    if not stored:
        tried += [
            name
            for name, least_bits in formats
            if least_bits * model.parameters <= total_bits and has_evidence(name, "weights", model.parameters)
        ]
    for quantization in tried:
        changes = dict(engine.axes.on_cards) | dict(layout.changes)
        if quantization is not None:
            changes[engine.axes.quantization] = quantization
        if engine.axes.length:
            changes[engine.axes.length] = min(length, model.longest_request)
        deployment = replace(base, gpu=cards.gpu, gpu_memory_bytes=None, **changes)
        try:
            plan = engine.plan(model, deployment, workload)
        except PlannerError:
            continue
        if plan.accepted:
            return Pick(
                gpu=cards.gpu, cards=cards.count, quantization=quantization, plan=plan, proven=True, usd_per_hour=None
            )
    return None


def by_parameters(found: Iterable[Pick]) -> list[Pick]:
    """The largest first; of one size the better format."""
    return sorted(found, key=lambda pick: (-pick.plan.model.parameters, -pick.weight_bits, pick.plan.model.id))
