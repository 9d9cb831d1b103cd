"""A diagnosis as text for people, Markdown, CSV or JSON. Verdict first, figures second, actions third."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.diagnosis.figure_meanings import is_size, meaning
from planner.diagnosis.length_tiers import Buckets
from planner.diagnosis.result import CLASS_SENTENCES, Diagnosis, Finding
from planner.diagnosis.sizes import is_sane
from planner.report.rows import Column, Format, render_rows
from planner.units import format_exact, format_size
from planner.version import SCHEMA

_WIDTH = 118
_MOST_SEGMENTS = 12
_MOST_POOLS = 8
_FIXED = (
    "source",
    "line",
    "program",
    "version_hint",
    "class",
    "second_class",
    "confidence",
    "device",
    "repeated",
    "rule",
)


def render_diagnosis(diagnosis: Diagnosis | None, *, format: Format | str, buckets: Buckets | None = None) -> str:
    """The diagnosis, and the tiers of lengths when there are some, in the format asked for; no newline at the end.

    Raises:
        ValueError: no such format.
    """
    wanted = Format(format)
    if wanted is Format.JSON:
        document = diagnosis.to_json() if diagnosis else {"schema": SCHEMA, "findings": [], "notes": []}
        _with_levers(document, diagnosis)
        if buckets is not None:
            document["buckets"] = buckets.to_json()
        return json.dumps(document, indent=2, ensure_ascii=False)
    if wanted is Format.CSV:
        parts = ([_csv(diagnosis.findings)] if diagnosis else []) + ([_tiers(buckets, wanted)] if buckets else [])
        return "\n\n".join(parts)
    return "\n".join(_lines(diagnosis, buckets, wanted)).rstrip("\n")


def _with_levers(document: dict[str, Any], diagnosis: Diagnosis | None) -> None:
    """Adds the levers of the plans to a document whose findings have plans."""
    for row, finding in zip(document["findings"], diagnosis.findings if diagnosis else (), strict=True):
        if finding.plan is not None:
            from planner.diagnosis.expectation.beside_plan import Expectation
            from planner.report.expectation import expectation_json  # only with a plan: a tenth of a second

            assert isinstance(finding.plan, Expectation)
            row["plan"] = expectation_json(finding.plan)


def _csv(findings: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(name for finding in findings for name in finding.figures))
    rows = []
    for finding in findings:
        whole = finding.to_json()
        rows.append({**{k: whole[k] for k in _FIXED}, **{name: whole["figures"].get(name) for name in names}})
    return render_rows(rows, columns=(), format=Format.CSV, query={})


def _lines(diagnosis: Diagnosis | None, buckets: Buckets | None, format: Format) -> Iterable[str]:
    findings = diagnosis.findings if diagnosis else ()
    told: dict[object, int] = {}
    warned: set[str] = set()
    for number, finding in enumerate(findings, 1):
        yield from _finding(finding, number, len(findings), format)
        yield from _plan(finding, format)
        first = told.setdefault(finding.actions, number)
        if first == number:
            yield from _actions(finding, format)
        else:
            yield from _section("What to do", (f"as for {first}",), format)
        yield from _section("Careful", (c for c in finding.cautions if c not in warned), format)
        warned.update(finding.cautions)
        yield ""
    if diagnosis and diagnosis.notes:
        yield _heading("Notes", format)
        yield from (_item(note, format) for note in diagnosis.notes)
        yield ""
    if buckets is not None:
        yield from _buckets(buckets, format)


def _finding(finding: Finding, number: int, of: int, format: Format) -> Iterable[str]:
    verdict = finding.verdict
    title = f"{verdict.failure} ({verdict.confidence} confidence): {CLASS_SENTENCES[verdict.failure]}"
    numbered = f"{number}. {title}" if of > 1 else title
    yield f"## {numbered}" if format is Format.MARKDOWN else numbered
    if verdict.second is not None:
        yield f"second reading: {verdict.second}, {CLASS_SENTENCES[verdict.second]}"
    yield ""
    yield _where(finding)
    rows = [_figure_row(name, value) for name, value in finding.figures.items()]
    rows += [
        {"figure": name, "value": _value(name, value), "meaning": "follows from the others"}
        for name, value in verdict.derived.items()
    ]
    if rows:
        yield ""
        yield _table(rows, (("figure", "Figure"), ("value", "Value"), ("meaning", "Meaning")), format)
    yield from _snapshot(finding.tables, format)
    yield from _section("Why", (f"rule: {verdict.rule}", *verdict.evidence), format)
    yield from _section("What would change this", verdict.would_change, format)


def _plan(finding: Finding, format: Format) -> Iterable[str]:
    """What the plan expected there, when the workload was given."""
    if finding.plan is None:
        return
    from planner.diagnosis.expectation.beside_plan import Expectation
    from planner.report.expectation import expectation_heading, expectation_table  # as above

    assert isinstance(finding.plan, Expectation)
    yield ""
    yield _heading(expectation_heading(finding.plan), format)
    yield expectation_table(finding.plan, format)
    if any(row.beyond for row in finding.plan.rows):
        yield "* outside the plan's band"
    yield from _section("Plan and text", finding.plan.notes, format)


def _actions(finding: Finding, format: Format) -> Iterable[str]:
    if finding.actions:
        yield ""
        yield _heading("What to do, in order", format)
        for index, action in enumerate(finding.actions, 1):
            yield _wrapped(f"{index}. {action.do}", format)
            yield _wrapped(f"   ({action.why})", format)
            if action.command:
                yield f"   to look: {_code(action.command, format)}"


def _where(finding: Finding) -> str:
    message = finding.message
    parts = [message.program + (f", {message.version_hint}" if message.version_hint else "")]
    if message.device is not None:
        parts.append(f"device {message.device}")
    if message.source:
        parts.append(message.source + (f" line {message.line}" if message.line else ""))
    if message.repeated > 1:
        parts.append(f"{message.repeated} times")
    parts += [
        f"{name} {value}" for name, value in message.context.items() if name in ("phase", "rank", "time", "engine")
    ]
    return "from: " + "; ".join(parts)


def _figure_row(name: str, value: object) -> dict[str, object]:
    return {"figure": name, "value": _value(name, value), "meaning": meaning(name)}


def _value(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_value(name, item) for item in value[:8]) + (", ..." if len(value) > 8 else "")
    if isinstance(value, int) and is_size(name):
        return format_exact(value) if is_sane(value) else f"{value} B (no size)"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _section(name: str, lines: Iterable[str], format: Format) -> Iterable[str]:
    listed = list(lines)
    if listed:
        yield ""
        yield _heading(name, format)
        yield from (_item(line, format) for line in listed)


def _item(text: str, format: Format) -> str:
    return _wrapped(f"- {text}", format)


def _wrapped(text: str, format: Format) -> str:
    """A line of a list, folded for a terminal; Markdown folds by itself."""
    if format is not Format.TABLE or len(text) <= _WIDTH:
        return text
    indent = " " * (2 if text.startswith("-") else 3)
    folded = textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(folded)


def _heading(name: str, format: Format) -> str:
    return f"### {name}" if format is Format.MARKDOWN else f"{name}:"


def _code(text: str, format: Format) -> str:
    return f"`{text}`" if format is Format.MARKDOWN else text


def _table(rows: Sequence[Mapping[str, object]], columns: Iterable[tuple[str, str]], format: Format) -> str:
    shown = tuple(Column(field=field, heading=heading, right=field == "value") for field, heading in columns)
    return render_rows(rows, columns=shown, format=format, query={})


def _snapshot(tables: Mapping[str, Any], format: Format) -> Iterable[str]:
    """States, pools, map of the segments and top sites of a snapshot."""
    if not tables:
        return
    yield ""
    yield _heading(f"Allocator at the {tables['moment']}", format)
    yield _table(
        [{"figure": name, "value": _value(name, value)} for name, value in tables["states"].items()],
        (("figure", "State"), ("value", "Size")),
        format,
    )
    yield ""
    yield _heading("Pools", format)
    yield _table([_pool_row(pool) for pool in tables["pools"][:_MOST_POOLS]], _POOL_COLUMNS, format)
    yield from _left_out(len(tables["pools"]) - _MOST_POOLS, "pools")
    yield ""
    yield _heading("Largest segments (# live, ~ awaiting free, + mixed, . free)", format)
    fence = ["```"] if format is Format.MARKDOWN else []
    yield from fence
    for segment in tables["segments"][:_MOST_SEGMENTS]:
        yield f"[{segment['map']}] {format_size(segment['size_bytes'])}, {_segment_words(segment)}"
    yield from fence
    yield from _left_out(len(tables["segments"]) - _MOST_SEGMENTS, "segments (all are in --format json)")
    if tables["sites"]:
        yield ""
        yield _heading(f"Who holds the live blocks at the {tables['sites_at']}", format)
        rows = [{**site, "size": format_size(site["size_bytes"])} for site in tables["sites"]]
        yield _table(rows, (("site", "Site"), ("blocks", "Blocks"), ("size", "Size")), format)


_POOL_COLUMNS = (
    ("pool", "Pool"),
    ("segments", "Segments"),
    ("size", "Reserved"),
    ("active", "Active"),
    ("inactive", "Inactive"),
    ("largest", "Largest free block"),
)


def _pool_row(pool: Mapping[str, Any]) -> dict[str, object]:
    kind = "private" if pool["is_private"] else "default"
    grows = ", expandable" if pool["is_expandable"] else ""
    return {
        "pool": f"{kind} {pool['segment_type']}, stream {pool['stream']}{grows}",
        "segments": pool["segments"],
        "size": format_size(pool["size_bytes"]),
        "active": format_size(pool["active_bytes"] + pool["awaiting_free_bytes"]),
        "inactive": format_size(pool["inactive_bytes"]),
        "largest": format_size(pool["largest_inactive_bytes"]),
    }


def _segment_words(segment: Mapping[str, Any]) -> str:
    words = f"{format_size(segment['inactive_bytes'])} free, largest {format_size(segment['largest_inactive_bytes'])}"
    return words + (", expandable" if segment["is_expandable"] else "")


def _left_out(number: int, what: str) -> Iterable[str]:
    if number > 0:
        yield f"and {number} further {what}"


def _buckets(buckets: Buckets, format: Format) -> Iterable[str]:
    bound = f"{buckets.max_waste_percent:g}%"
    met = "at most" if buckets.meets_bound else "not within"
    yield _heading(f"Padded lengths: {len(buckets.tiers)} tiers, waste {met} {bound}", format)
    yield _tiers(buckets, format)
    yield ""
    yield _item(
        f"{buckets.padded_tokens:,} padded tokens for {buckets.tokens:,}: {buckets.waste_percent:.1f}% waste; one "
        f"length "
        f"for all would waste {buckets.one_length_waste_percent:.1f}%",
        format,
    )
    yield _item(
        f"cost: {len(buckets.tiers)} shapes to capture, compile and keep blocks for; each batch is padded to its "
        f"longest "
        "sequence's tier, so sequences of one tier belong together",
        format,
    )
    if not buckets.meets_bound:
        yield f"- rounding up to multiples of {buckets.multiple} alone wastes that much: take a smaller multiple"


def _tiers(buckets: Buckets, format: Format) -> str:
    rows = buckets.to_json()["tiers"]
    columns = (
        Column(field="length", heading="Length", right=True),
        Column(field="sequences", heading="Sequences", right=True),
        Column(field="padded_tokens", heading="Padded tokens", right=True),
        Column(field="waste_percent", heading="Waste %", right=True),
    )
    return render_rows(rows, columns=columns, format=format, query={})
