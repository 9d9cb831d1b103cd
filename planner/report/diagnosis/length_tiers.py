"""Tiers of padded lengths for people."""

from __future__ import annotations

from planner.diagnosis.length_tiers import Buckets
from planner.report.diagnosis.lines import bullets
from planner.report.rows import Column, Format, render_rows


def tiers_lines(buckets: Buckets, format: Format) -> list[str]:
    """The tiers, their waste and their cost."""
    met = "at most" if buckets.meets_bound else "not within"
    title = f"Padded lengths: {len(buckets.tiers)} tiers, waste {met} {buckets.max_waste_percent:g}%"
    notes = [
        f"{buckets.padded_tokens:,} padded tokens for {buckets.tokens:,}: {buckets.waste_percent:.1f}% waste; one "
        f"length"
        f" for all would waste {buckets.one_length_waste_percent:.1f}%",
        f"cost: {len(buckets.tiers)} shapes to capture, compile and keep blocks for; each batch is padded to its "
        f"longest"
        " sequence's tier, so sequences of one tier belong together",
    ]
    if not buckets.meets_bound:
        notes.append(f"rounding up to multiples of {buckets.multiple} alone wastes that much: take a smaller multiple")
    head = f"### {title}" if format is Format.MARKDOWN else f"{title}:"
    return [head, tiers_table(buckets, format), "", *bullets(notes)]


def tiers_table(buckets: Buckets, format: Format) -> str:
    """One tier a row."""
    rows = buckets.to_json()["tiers"]
    columns = (
        Column(field="length", heading="Length", right=True),
        Column(field="sequences", heading="Sequences", right=True),
        Column(field="padded_tokens", heading="Padded tokens", right=True),
        Column(field="waste_percent", heading="Waste %", right=True),
    )
    return render_rows(rows, columns=columns, format=format, query={})
