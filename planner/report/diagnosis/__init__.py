"""A diagnosis as text for people, Markdown, CSV, JSON or a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from planner.diagnosis.length_tiers import Buckets
from planner.diagnosis.result import Diagnosis, Finding
from planner.report.diagnosis.details import details
from planner.report.diagnosis.first_screen import first_screen
from planner.report.diagnosis.length_tiers import tiers_lines, tiers_table
from planner.report.rows import Format, render_rows
from planner.version import SCHEMA

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


def render_diagnosis(
    diagnosis: Diagnosis | None, *, format: Format | str, buckets: Buckets | None = None, more: bool = False
) -> str:
    """The diagnosis, and the tiers of lengths when there are some, in the format asked for; no newline at the end.

    Args:
        more: the table goes on after its first screen: figures, reasons, cautions, all remedies.

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
        parts = ([_csv(diagnosis.findings)] if diagnosis else []) + ([tiers_table(buckets, wanted)] if buckets else [])
        return "\n\n".join(parts)
    if wanted is Format.HTML:
        from planner.report.html.diagnosis import diagnosis_page  # only a page pays for it

        return diagnosis_page(diagnosis, buckets)
    lines: list[str] = []
    if diagnosis is not None:
        if wanted is Format.TABLE:
            lines += first_screen(diagnosis, more=more)
        if more or wanted is not Format.TABLE:
            lines += ["", *details(diagnosis, wanted)] if lines else details(diagnosis, wanted)
    if buckets is not None:
        lines += ["", *tiers_lines(buckets, wanted)] if lines else tiers_lines(buckets, wanted)
    return "\n".join(lines).strip("\n")


def _with_levers(document: dict[str, Any], diagnosis: Diagnosis | None) -> None:
    """Adds the levers of the plans to a document whose findings have plans."""
    for row, finding in zip(document["findings"], diagnosis.findings if diagnosis else (), strict=True):
        if finding.plan is not None:
            from planner.diagnosis.expectation.beside_plan import Expectation
            from planner.report.diagnosis.plan import expectation_json  # only with a plan: a tenth of a second

            assert isinstance(finding.plan, Expectation)
            row["plan"] = expectation_json(finding.plan)


def _csv(findings: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(name for finding in findings for name in finding.figures))
    rows = []
    for finding in findings:
        whole = finding.to_json()
        rows.append({**{k: whole[k] for k in _FIXED}, **{name: whole["figures"].get(name) for name in names}})
    return render_rows(rows, columns=(), format=Format.CSV, query={})
