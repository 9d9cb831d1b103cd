"""A snapshot's tables for people: states, pools, a map of the segments, and who holds the live blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.report.diagnosis.lines import wrapped
from planner.report.rows import Column, Format, render_rows
from planner.units import format_exact, format_size

_MOST_SEGMENTS = 12
_MOST_POOLS = 8
_POOL_COLUMNS = (
    Column(field="pool", heading="Pool", right=False),
    Column(field="segments", heading="Segments", right=True),
    Column(field="size", heading="Reserved", right=True),
    Column(field="active", heading="Active", right=True),
    Column(field="largest", heading="Largest free", right=True),
)


def snapshot_lines(tables: Mapping[str, Any], format: Format) -> list[str]:
    """The allocator of a snapshot; nothing for other findings."""
    if "states" not in tables:
        return []
    head = "### " if format is Format.MARKDOWN else ""
    fence = ["```"] if format is Format.MARKDOWN else []
    lines = ["", f"{head}Allocator at the {tables['moment']}:"]
    for name, value in tables["states"].items():
        shown = format_exact(value) if name.endswith("_bytes") else f"{value:,}"
        lines.append(f"{name:<40} {shown}")
    rows = [_pool_row(pool) for pool in tables["pools"][:_MOST_POOLS]]
    lines += ["", f"{head}Pools:", render_rows(rows, columns=_POOL_COLUMNS, format=format, query={})]
    lines += _left_out(len(tables["pools"]) - _MOST_POOLS, "pools")
    lines += ["", f"{head}Largest segments (# live, ~ awaiting free, + mixed, . free):", *fence]
    for segment in tables["segments"][:_MOST_SEGMENTS]:
        lines += [f"[{segment['map']}]", f"    {format_size(segment['size_bytes'])}, {_segment_words(segment)}"]
    lines += [*fence, *_left_out(len(tables["segments"]) - _MOST_SEGMENTS, "segments (all are in --format json)")]
    if tables["sites"]:
        lines += ["", f"{head}Who holds the live blocks at the {tables['sites_at']}:"]
        for site in tables["sites"]:
            words = f"{format_size(site['size_bytes']):>10} in {site['blocks']:,} blocks: {site['site']}"
            lines += wrapped(words, rest="           ")
    return lines


def _pool_row(pool: Mapping[str, Any]) -> dict[str, object]:
    kind = "private" if pool["is_private"] else "default"
    grows = ", grows" if pool["is_expandable"] else ""
    return {
        "pool": f"{kind} {pool['segment_type']}, stream {str(pool['stream'])[:8]}{grows}",
        "segments": pool["segments"],
        "size": format_size(pool["size_bytes"]),
        "active": format_size(pool["active_bytes"] + pool["awaiting_free_bytes"]),
        "largest": format_size(pool["largest_inactive_bytes"]),
    }


def _segment_words(segment: Mapping[str, Any]) -> str:
    words = f"{format_size(segment['inactive_bytes'])} free, largest {format_size(segment['largest_inactive_bytes'])}"
    return words + (", expandable" if segment["is_expandable"] else "")


def _left_out(number: int, what: str) -> list[str]:
    return [f"and {number} further {what}"] if number > 0 else []
