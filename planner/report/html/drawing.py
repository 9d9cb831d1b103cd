"""Drawings without a script: a card's memory as a bar, a curve, and dots of a comparison, as SVG with text beside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from planner.units import GIB

# Distinct in both colour schemes, and apart for the usual kinds of colour blindness (Okabe and Ito 2008, adapted).
_TINTS: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8c8c8c",
    "#b8a000",
    "#7f5fc4",
    "#4f9d69",
)
_WIDTH: Final = 720
_BAR: Final = 40
_CHART: Final = 220
_LEFT: Final = 56
_BOTTOM: Final = 28


def _open(said: str, height: int) -> str:
    """The tag that begins a drawing; `said` is escaped."""
    return f'<svg role="img" aria-label="{said}" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">'


def bar(title: str, parts: Sequence[tuple[str, int]], total_bytes: int) -> str:
    """A card's memory: (name, bytes) in order against the total; what is beyond it runs past the frame."""
    shown = [(name, size) for name, size in parts if size > 0]
    used = sum(size for _, size in shown)
    whole = max(total_bytes, used, 1)
    x, drawn, words = 0.0, [], []
    for index, (name, size) in enumerate(shown):
        width = size / whole * _WIDTH
        tint = _TINTS[index % len(_TINTS)]
        label = f"{name} {size / GIB:.2f} GiB"
        drawn.append(
            f'<rect x="{x:.1f}" y="0" width="{max(width, 1):.1f}" height="{_BAR}" fill="{tint}">'
            f"<title>{escape(label)}</title></rect>"
        )
        words.append(f'<li><span class="swatch" style="background:{tint}"></span>{escape(label)}</li>')
        x += width
    end = total_bytes / whole * _WIDTH
    said = escape(f"{title}: {used / GIB:.2f} of {total_bytes / GIB:.2f} GiB")
    return (
        f'<figure>{_open(said, _BAR + 2)}{"".join(drawn)}<rect x="0.5" y="0.5" width="{end - 1:.1f}" height="{_BAR}"'
        f' fill="none" stroke="currentColor"/></svg><figcaption>{said}</figcaption></figure>'
        f'<ul class="legend">{"".join(words)}</ul>'
    )


def curve(title: str, points: Sequence[tuple[int, int]], *, across: str, up: str) -> str:
    """A curve through (x, y), steps of x evenly apart; the same figures stand in a table beside it."""
    if len(points) < 2 or not any(value for _, value in points):
        return ""
    most = max(value for _, value in points) or 1
    step = (_WIDTH - _LEFT - 8) / (len(points) - 1)
    placed = [
        (_LEFT + index * step, 10 + (_CHART - _BOTTOM - 10) * (1 - value / most))
        for index, (_, value) in enumerate(points)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    every = max(1, len(points) // 6)
    anchors = ["middle"] * (len(points) - 1) + ["end"]
    marks = "".join(
        f'<text x="{x:.1f}" y="{_CHART - 8}" text-anchor="{anchors[index]}">{points[index][0]:,}</text>'
        for index, (x, _) in enumerate(placed)
        if index % every == 0
    )
    said = escape(f"{title}: {up} by {across}")
    return (
        f"<figure>{_open(said, _CHART)}"
        f'<line x1="{_LEFT}" y1="{_CHART - _BOTTOM}" x2="{_WIDTH}" y2="{_CHART - _BOTTOM}" stroke="currentColor"/>'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{most:,}</text>'
        f'<text x="{_LEFT - 6}" y="{_CHART - _BOTTOM}" text-anchor="end">0</text>{marks}'
        f'<polyline points="{line}" fill="none" stroke="{_TINTS[0]}" stroke-width="2.5"/></svg>'
        f"<figcaption>{said}</figcaption></figure>"
    )


def dots(title: str, points: Sequence[tuple[float, float, str]], *, across: str, up: str) -> str:
    """Rows of a comparison as dots: (x, y, name)."""
    shown = [point for point in points if point[0] > 0 and point[1] > 0]
    if len(shown) < 2:
        return ""
    far, high = max(point[0] for point in shown), max(point[1] for point in shown)
    drawn = "".join(
        f'<circle cx="{_LEFT + x / far * (_WIDTH - _LEFT - 12):.1f}"'
        f' cy="{10 + (1 - y / high) * (_CHART - _BOTTOM - 10):.1f}" r="4.5" fill="{_TINTS[0]}" fill-opacity=".75">'
        f"<title>{escape(name)}</title></circle>"
        for x, y, name in shown
    )
    said = escape(f"{title}: {up} by {across}")
    return (
        f"<figure>{_open(said, _CHART)}"
        f'<line x1="{_LEFT}" y1="{_CHART - _BOTTOM}" x2="{_WIDTH}" y2="{_CHART - _BOTTOM}" stroke="currentColor"/>'
        f'<line x1="{_LEFT}" y1="8" x2="{_LEFT}" y2="{_CHART - _BOTTOM}" stroke="currentColor"/>'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{high:,.0f}</text>'
        f'<text x="{_WIDTH}" y="{_CHART - 8}" text-anchor="end">{far:,.1f} {escape(across)}</text>{drawn}</svg>'
        f"<figcaption>{said}</figcaption></figure>"
    )
