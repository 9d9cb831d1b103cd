"""A diagnosis as a page: what happened, whose memory it was, what to do, and the figures behind it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from planner.diagnosis.figure_meanings import meaning
from planner.diagnosis.headline import sureness
from planner.diagnosis.length_tiers import Buckets
from planner.diagnosis.result import CLASS_SENTENCES, Action, Diagnosis, Finding, Ownership
from planner.report.diagnosis.details import figure_value
from planner.report.diagnosis.snapshot import snapshot_lines
from planner.report.html.drawing import bar
from planner.report.html.page import bullets, command_block, facts, fold, heading, page, paragraph, preformatted, table
from planner.report.rows import Format

_SHARES = (
    ("tensors", "tensors of this process"),
    ("unused", "reserved by it, unused"),
    ("outside", "beside torch"),
    ("others", "other processes"),
)


def diagnosis_page(diagnosis: Diagnosis | None, buckets: Buckets | None = None) -> str:
    """The diagnosis, and the tiers of lengths when there are some, as one page."""
    findings = diagnosis.findings if diagnosis is not None else ()

    def parts() -> Iterator[str]:
        yield f"<h1>{escape(_title(findings))}</h1>"
        for number, finding in enumerate(findings, 1):
            if len(findings) > 1:
                yield heading(f"{number}. {finding.headline}")
            yield from _finding(finding, 3 if len(findings) > 1 else 2)
        if diagnosis is not None and diagnosis.notes:
            yield heading("Notes")
            yield bullets(diagnosis.notes)
        if buckets is not None:
            yield from _tiers(buckets)

    return page("Diagnosis" if findings else "Padded lengths", parts())


def _title(findings: tuple[Finding, ...]) -> str:
    if len(findings) == 1:
        return findings[0].headline
    return f"{len(findings)} findings, the first to mend first" if findings else "Padded lengths"


def _finding(finding: Finding, level: int) -> Iterator[str]:
    """The parts of a finding under headings of that level."""
    verdict, message = finding.verdict, finding.message
    if finding.whose:
        yield paragraph(finding.whose)
    yield from _memory(finding.ownership)
    if finding.actions:
        yield heading("What to do, in order", level)
        yield "<ol>" + "".join(f"<li>{_action(action)}</li>" for action in finding.actions) + "</ol>"
    if finding.cautions:
        yield heading("Careful", level)
        yield bullets(finding.cautions)
    yield heading("How sure", level)
    sure = sureness(finding)
    yield paragraph(f"{sure[:1].upper()}{sure[1:]}")
    yield paragraph(f"{verdict.failure}: {CLASS_SENTENCES[verdict.failure]}")
    yield from _plan(finding, level)
    yield fold("Why", bullets((f"rule: {verdict.rule}", *verdict.evidence)))
    if verdict.would_change:
        yield fold("What would change this", bullets(verdict.would_change))
    rows = [(name, figure_value(name, value), meaning(name)) for name, value in finding.figures.items()]
    rows += [(name, figure_value(name, value), "follows from the others") for name, value in verdict.derived.items()]
    if rows:
        headings = (("figure", False), ("value", True), ("what it is", False))
        yield fold("Figures", table(f"Figures of {message.program}", headings, rows))
    snapshot = snapshot_lines(finding.tables, Format.TABLE)
    if snapshot:
        yield fold("The allocator", preformatted("\n".join(snapshot).strip(), "state of the allocator"))
    place = {"program": message.program, "version": message.version_hint, "source": message.source}
    place |= {"line": str(message.line) if message.line else None, **message.context}
    yield fold("Where it stands", facts((name, str(value)) for name, value in place.items() if value))


def _memory(owned: Ownership) -> Iterator[str]:
    """The device as a bar, where its size and a share are known."""
    shares = [(words, size) for name, words in _SHARES if (size := getattr(owned, name))]
    if owned.total and shares and sum(size for _, size in shares) <= owned.total:
        yield bar("The device", shares, owned.total)


def _action(action: Action) -> str:
    said = escape(action.do)
    if action.setting:
        said += command_block(action.setting, f"setting: {action.do}")
    said += f"<p>{escape(action.why)}</p>"
    if action.command:
        said += "<p>To look:</p>" + command_block(action.command, f"to look: {action.do}")
    return said


def _plan(finding: Finding, level: int) -> Iterator[str]:
    """What the plan expected there, when the workload was given."""
    if finding.plan is None:
        return
    from planner.diagnosis.expectation.beside_plan import Expectation
    from planner.report.diagnosis.plan import compared, expectation_heading  # only with a plan

    assert isinstance(finding.plan, Expectation)
    yield heading("Beside the plan", level)
    yield paragraph(expectation_heading(finding.plan))
    headings = (
        ("figure", False),
        ("planned", True),
        ("in the text", True),
        ("difference", True),
        ("what is compared", False),
    )
    rows = [(row.name, *compared(row), row.what) for row in finding.plan.rows]
    yield table("Planned and in the text; * is outside the plan's band", headings, rows)
    if finding.plan.notes:
        yield bullets(finding.plan.notes)


def _tiers(buckets: Buckets) -> Iterator[str]:
    met = "at most" if buckets.meets_bound else "not within"
    yield heading(f"{len(buckets.tiers)} tiers, waste {met} {buckets.max_waste_percent:g}%")
    rows = [
        (f"{row['length']:,}", f"{row['sequences']:,}", f"{row['padded_tokens']:,}", f"{row['waste_percent']:.1f}")
        for row in buckets.to_json()["tiers"]
    ]
    headings = (("length", True), ("sequences", True), ("padded tokens", True), ("waste %", True))
    yield table("Padded lengths", headings, rows)
    yield paragraph(
        f"{buckets.padded_tokens:,} padded tokens for {buckets.tokens:,}: {buckets.waste_percent:.1f}% waste; one"
        f" length for all would waste {buckets.one_length_waste_percent:.1f}%"
    )
