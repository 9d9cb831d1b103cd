"""Each result as a page: a serving plan, a fine-tune, a table of rows, a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.contract.component import Component
from planner.contract.engine import command_line, find_engine
from planner.contract.plan import VERDICTS, Device, ServingPlan
from planner.contract.section import label_of
from planner.errors import PlannerError
from planner.report.html.drawing import bar, curve, dots
from planner.report.html.page import (
    bullets,
    command_block,
    facts,
    fold,
    heading,
    page,
    paragraph,
    table,
    verdict_heading,
)
from planner.report.printer import Heading
from planner.units import format_exact, format_size, gib

if TYPE_CHECKING:
    from planner.levers.advice import Advice
    from planner.report.rows import Column
    from planner.training.largest import Largest
    from planner.training.plan import TrainingPlan

_SIDES = (("low", True), ("best", True), ("high", True), ("evidence", False))
_CURVE_FROM = 10


def serving_page(plan: ServingPlan, advice: Advice | None = None) -> str:
    """A serving plan: verdict, the card, the breakdown with formulas, context against concurrency, what to change."""
    return page(f"{plan.model.id}: {VERDICTS[plan.verdict]}", serving_parts(plan, advice))


def serving_parts(plan: ServingPlan, advice: Advice | None = None) -> Iterator[str]:
    """The parts of the page, which notebooks show too."""
    engine = find_engine(plan.engine)
    told = engine.section(plan)
    cards = [device for device in plan.devices if device.kind == "gpu"]
    first = cards[0] if cards else plan.devices[0]
    count = sum(device.count for device in cards)
    yield verdict_heading(
        plan.verdict,
        f"{plan.model.id} on {count} x {first.name} ({gib(first.total_bytes)} GiB), {engine.title}"
        f" {plan.engine_version}: {told.headline}",
    )
    if plan.unknown:
        yield paragraph(f"Not known: {'; '.join(plan.unknown)}")
    if plan.startup_error is not None:
        yield paragraph(f"The engine would stop with: {plan.startup_error.message}")
    yield heading("Memory")
    for device in plan.devices:
        yield from _device(device)
    yield heading("Requests")
    yield table(
        "Requests that fit when all have this length",
        (("all requests at", False), ("tokens", True), ("at once", True)),
        [(point.at, f"{point.tokens_per_request:,}", f"{point.concurrency:,}") for point in plan.points],
    )
    yield from _contexts(plan)
    for line in told.lines:
        yield paragraph(line)
    if advice is not None:
        yield from _advice(advice)
    yield heading("Command")
    yield command_block(command_line(plan), "command that realises the plan")
    if plan.notes:
        yield heading("Notes")
        yield bullets(plan.notes)
    yield fold("Every input", facts((name, str(value)) for name, value in told.inputs.items() if value is not None))


def _device(device: Device) -> Iterator[str]:
    parts = [(label_of(part.name), part.best) for part in device.components]
    if device.cache_bytes and not any(part.name == "kv_cache" for part in device.components):
        parts.append(("KV cache", device.cache_bytes))
    if device.total_bytes and parts:
        yield bar(device.name, parts, device.total_bytes)
    if device.components:
        yield _components(device.name, device.components)


def _components(caption: str, components: Sequence[Component]) -> str:
    rows = [(label_of(part.name), gib(part.low), gib(part.best), gib(part.high), part.evidence) for part in components]
    formulas = facts(
        (label_of(part.name), f"{part.formula} = {format_exact(part.best)} ({part.source})") for part in components
    )
    return table(f"{caption}: terms in GiB", (("term", False), *_SIDES), rows) + fold("Formulas and sources", formulas)


def _contexts(plan: ServingPlan) -> Iterator[str]:
    """Context against concurrency, doubling up to what the model accepts."""
    engine = find_engine(plan.engine)
    lengths = [1 << bit for bit in range(_CURVE_FROM, 41) if 1 << bit < plan.positions] + [plan.positions]
    try:
        prepared = engine.prepare(plan.model, plan.deployment, replace(plan.workload, input_len=None, output_len=None))
        points = [(length, prepared.at(length).concurrency) for length in lengths[-12:]]
    except PlannerError:
        return
    yield curve("Context against concurrency", points, across="tokens a request", up="requests at once")
    if not any(held for _, held in points):
        return
    yield fold(
        "The same as a table",
        table(
            "Requests at once by context",
            (("context", True), ("at once", True)),
            [(f"{length:,}", f"{held:,}") for length, held in points],
        ),
    )


def _advice(advice: Advice) -> Iterator[str]:
    if advice.levers:
        yield heading("What could be changed")
        yield table(
            "One change at a time",
            (("change", False), ("GiB saved", True), ("then", False), ("costs", False), ("what it means", False)),
            [
                (
                    effect.setting.flag,
                    gib(effect.saves_bytes),
                    VERDICTS[effect.verdict],
                    effect.setting.kind.cost,
                    effect.setting.detail,
                )
                for effect in advice.levers
            ],
        )
    for number, one in enumerate(advice.plans, start=1):
        flags = " ".join(setting.flag for setting in one.settings)
        yield paragraph(f"{number}. {flags}: {VERDICTS[one.verdict]}; costs {one.cost}")
    relief = advice.relief
    if relief is not None:
        for term in relief.excess:
            yield paragraph(f"{term.name} alone needs {format_size(term.excess_bytes)} more than the card")
        if relief.gpu is not None:
            yield paragraph(f"It fits one {relief.gpu.name} ({relief.card_flag})")
        if relief.cards > 1:
            yield paragraph(f"It fits {relief.cards} of this card ({relief.layout_flag})")
    if advice.notes:
        yield bullets(advice.notes)


def training_page(plan: TrainingPlan, largest: Largest | None = None, advice: Advice | None = None) -> str:
    """A fine-tune: verdict, the card, phases, the largest that fits, what to change."""
    from planner.report.training import recipe_line, verdict_text

    def parts() -> Iterator[str]:
        yield verdict_heading(plan.verdict, verdict_text(plan))
        yield paragraph(recipe_line(plan))
        yield heading("Memory")
        yield bar(plan.gpu.name, [(label_of(part.name), part.best) for part in plan.components], plan.gpu_memory_bytes)
        yield _components(plan.gpu.name, [part for part in plan.components if part.high])
        yield heading("Phases")
        yield table(
            "Allocated by phase",
            (("phase", False), ("GiB", True)),
            [(phase.name, gib(phase.allocated_bytes)) for phase in plan.phases],
        )
        if largest is not None:
            yield heading("The largest that fits, each with the rest as asked")
            yield facts(
                (name, f"{value} {largest.verdicts.get(name, '')}".strip())
                for name in largest.__dataclass_fields__
                if name != "verdicts" and (value := getattr(largest, name)) is not None
            )
        if advice is not None:
            yield from _advice(advice)
        if plan.notes:
            yield heading("Notes")
            yield bullets(plan.notes)

    return page(f"{plan.model.id}: {VERDICTS[plan.verdict]}", parts())


def rows_page(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    query: Mapping[str, object],
    notes: Sequence[str] = (),
    plotted: tuple[str, str, str] | None = None,
) -> str:
    """A table of rows, and the question that made it.

    Args:
        plotted: fields to draw as dots: across, up, and what names a dot.
    """

    def parts() -> Iterator[str]:
        yield f"<h1>{_escaped(title)}</h1>"
        headings = [Heading(title=column.heading, right=column.right) for column in columns]
        cells = [[column.text(row.get(column.field)) for column in columns] for row in rows]
        yield table(
            f"{len(rows):,} rows",
            [(one.title, one.right) for one in headings],
            cells,
            classes=[str(row.get("verdict") or "") for row in rows],
        )
        if plotted is not None:
            across, up, named = plotted
            points = [
                (float(row[across]) / (1 << 30), float(row[up]), str(row[named]))
                for row in rows
                if isinstance(row.get(across), int | float) and isinstance(row.get(up), int | float)
            ]
            yield dots(
                title,
                points,
                across=f"GiB of {across.removesuffix('_bytes').replace('_', ' ')}",
                up=up.replace("_", " "),
            )
        if notes:
            yield bullets(notes)
        yield fold("The question", facts((name, str(value)) for name, value in query.items()))

    return page(title, parts())


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
