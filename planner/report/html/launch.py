"""What was read from launch forms, and what comes of it, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from planner.contract.plan import VERDICTS
from planner.launches.record import Launch, LaunchPlan
from planner.report.html.page import bullets, command_block, fold, heading, inner, page, paragraph, table
from planner.report.launch import Planned, shown
from planner.units import format_size


def launches_page(launches: Sequence[Launch], planned: Sequence[Planned]) -> str:
    """Each source: the plan of each server or run, and behind it what was read with its lines."""

    def parts() -> Iterator[str]:
        names = ", ".join(launch.file or "the text" for launch in launches[:3])
        yield f"<h1>{escape(names)}{' and more' if len(launches) > 3 else ''}</h1>"
        for launch in launches:
            count = len(launch.plans)
            yield paragraph(f"{launch.file or 'the text'}: {launch.form}, {count} plan{'s' if count != 1 else ''}")
            for one in planned:
                if any(one.plan is plan for plan in launch.plans):
                    yield from _planned(one)
            if launch.error is not None:
                yield paragraph(f"Not read: {launch.error}")
            for title, said in (("Needed", launch.needs), ("Not read", launch.unread), ("Notes", launch.notes)):
                if said:
                    yield heading(title)
                    yield bullets(said)

    return page("Plan of what is launched", parts())


def _planned(one: Planned) -> Iterator[str]:
    if one.text.startswith("<!doctype"):
        yield inner(one.text)
    elif one.text:
        yield paragraph(one.text)
    if one.message is not None:
        verdict = "does_not_fit" if one.status == 1 else one.verdict or "unknown"
        yield paragraph(f"{VERDICTS[verdict]}: {one.plan.model or one.plan.tool}: {one.message}")
    for name, size in one.needed.items():
        yield paragraph(f"{name.replace('_', ' ')} {format_size(size)} per GPU")
    yield fold(f"What was read: {one.plan.tool} {one.plan.version or ''}".strip(), _read(one.plan))
    if one.command and not one.text:
        yield command_block(one.command, "command that asks the same")


def _read(plan: LaunchPlan) -> str:
    rows = [
        (name, shown(value.value), str(value.line), value.how)
        for name, value in [*plan.inputs.items(), *plan.further.items()]
    ]
    rows += [(name, shown(default), "", f"default of {plan.tool}") for name, default in plan.defaults.items()]
    headings = (("input", False), ("value", False), ("line", True), ("how", False))
    return table(f"Inputs of {plan.name or plan.tool}", headings, rows)
