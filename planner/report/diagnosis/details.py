"""What stands behind the first screen: figures, reasons, all remedies and cautions, finding by finding."""

from __future__ import annotations

from collections.abc import Iterable

from planner.diagnosis.figure_meanings import is_size, meaning
from planner.diagnosis.result import CLASS_SENTENCES, Diagnosis, Finding
from planner.diagnosis.sizes import is_sane
from planner.report.diagnosis.lines import bullets, typed, wrapped
from planner.report.diagnosis.snapshot import snapshot_lines
from planner.report.rows import Format
from planner.units import format_exact

_NAME_COLUMNS = 30


def details(diagnosis: Diagnosis, format: Format) -> list[str]:
    """All findings in full."""
    lines: list[str] = []
    told: dict[object, int] = {}
    warned: set[str] = set()
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += _title(finding, number, len(diagnosis.findings), format)
        lines += _plan(finding, format)
        first = told.setdefault(finding.actions, number)
        lines += _actions(finding, format) if first == number else _section("What to do", (f"as for {first}",), format)
        lines += _section("Careful", (c for c in finding.cautions if c not in warned), format)
        warned.update(finding.cautions)
        lines.append("")
    if diagnosis.notes:
        lines += [heading("Notes", format), *bullets(diagnosis.notes), ""]
    return lines


def heading(name: str, format: Format) -> str:
    """The heading of a part."""
    return f"### {name}" if format is Format.MARKDOWN else f"{name}:"


def _title(finding: Finding, number: int, of: int, format: Format) -> list[str]:
    verdict = finding.verdict
    title = f"{verdict.failure} ({verdict.confidence} confidence): {CLASS_SENTENCES[verdict.failure]}"
    numbered = f"{number}. {title}" if of > 1 else title
    lines = [f"## {numbered}"] if format is Format.MARKDOWN else wrapped(numbered)
    if verdict.second is not None:
        lines += wrapped(f"second reading: {verdict.second}, {CLASS_SENTENCES[verdict.second]}")
    lines += ["", *([finding.headline, ""] if format is Format.MARKDOWN else []), *wrapped(_where(finding))]
    figures = list(_figures(finding))
    if figures:
        lines += ["", *figures]
    lines += snapshot_lines(finding.tables, format)
    lines += _section("Why", (f"rule: {verdict.rule}", *verdict.evidence), format)
    lines += _section("What would change this", verdict.would_change, format)
    return lines


def _where(finding: Finding) -> str:
    message = finding.message
    parts = [message.program + (f", {message.version_hint}" if message.version_hint else "")]
    if len(message.devices) > 1:
        parts.append("devices " + ", ".join(str(d) for d in message.devices))
    elif message.device is not None:
        parts.append(f"device {message.device}")
    if message.source:
        parts.append(message.source + (f" line {message.line}" if message.line else ""))
    if message.repeated > 1:
        parts.append(f"{message.repeated} times")
    shown = ("phase", "operation", "rank", "time", "engine", "place")
    parts += [f"{name} {value}" for name, value in message.context.items() if name in shown]
    return "from: " + "; ".join(parts)


def _figures(finding: Finding) -> Iterable[str]:
    """Each figure with its meaning, in lines of 80 columns."""
    for name, value in finding.figures.items():
        yield from _figure(name, figure_value(name, value), meaning(name))
    for name, value in finding.verdict.derived.items():
        yield from _figure(name, figure_value(name, value), "follows from the others")


def _figure(name: str, value: str, words: str) -> Iterable[str]:
    if len(value) <= 46:
        yield f"{name:<{_NAME_COLUMNS}}  {value}"
    else:
        yield name
        yield from wrapped(value, first="    ", rest="    ")
    if words:
        yield from wrapped(words, first="    ", rest="    ")


def figure_value(name: str, value: object) -> str:
    """A figure as people read it."""
    if isinstance(value, tuple):
        return ", ".join(figure_value(name, item) for item in value[:3]) + (", ..." if len(value) > 3 else "")
    if isinstance(value, int) and is_size(name):
        return format_exact(value) if is_sane(value) else f"{value} B (no size)"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plan(finding: Finding, format: Format) -> list[str]:
    """What the plan expected there, when the workload was given."""
    if finding.plan is None:
        return []
    from planner.diagnosis.expectation.beside_plan import Expectation
    from planner.report.diagnosis.plan import expectation_heading, expectation_lines  # only with a plan

    assert isinstance(finding.plan, Expectation)
    lines = ["", *wrapped(heading(expectation_heading(finding.plan), format)), *expectation_lines(finding.plan)]
    if any(row.beyond for row in finding.plan.rows):
        lines.append("* outside the plan's band")
    return lines + _section("Plan and text", finding.plan.notes, format)


def _actions(finding: Finding, format: Format) -> list[str]:
    if not finding.actions:
        return []
    lines = ["", heading("What to do, in order", format)]
    for index, action in enumerate(finding.actions, 1):
        lines += wrapped(f"{index}. {action.do}", rest="   ")
        if action.setting:
            lines += [f"   `{action.setting}`"] if format is Format.MARKDOWN else typed(action.setting, most=4)
        lines += wrapped(f"({action.why})", first="   ", rest="   ")
        if action.command:
            look = f"`{action.command}`" if format is Format.MARKDOWN else action.command
            lines += wrapped(f"to look: {look}", first="   ", rest="     ")
    return lines


def _section(name: str, lines: Iterable[str], format: Format) -> list[str]:
    listed = list(lines)
    return ["", heading(name, format), *bullets(listed)] if listed else []
