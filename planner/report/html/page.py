"""The shell of a page, and the parts that every result shares: prose, tables, folds, commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from html import escape
from importlib.resources import files

from planner.contract.plan import VERDICTS
from planner.version import __version__


@cache
def style() -> str:
    """The style sheet of every page."""
    return files("planner.report.html").joinpath("style.css").read_text("utf-8")


def page(title: str, body: Iterable[str]) -> str:
    """The whole document; `body` is HTML, the title text."""
    head = escape(title)
    parts = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width,initial-scale=1"><meta name="generator" content="vram-planner {__version__}">'
        f"<title>{head}</title><style>{style()}</style></head>\n<body>\n<main>\n{parts}\n</main>\n"
        f"<footer>vram-planner {__version__}, {date.today().isoformat()}. Sizes are GiB = 2<sup>30</sup> bytes, per"
        " GPU.</footer>\n</body></html>"
    )


def inner(document: str) -> str:
    """The body of a page that `page` made, its headings one deeper: to stand in another."""
    body = document.partition("<main>")[2].partition("</main>")[0].strip()
    for level in (3, 2, 1):
        body = body.replace(f"<h{level}>", f"<h{level + 1}>").replace(f"</h{level}>", f"</h{level + 1}>")
    return body


def verdict_heading(verdict: str, text: str) -> str:
    """The first heading: the verdict's word in its colour, and the rest of the line."""
    return f'<h1><span class="verdict {escape(verdict)}">{VERDICTS.get(verdict, verdict)}</span>: {escape(text)}</h1>'


def heading(text: str, level: int = 2) -> str:
    """A section's heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str) -> str:
    """A line of prose."""
    return f"<p>{escape(text)}</p>"


def command_block(text: str, label: str) -> str:
    """A command to copy."""
    return f'<pre tabindex="0" aria-label="{escape(label)}"><code>{escape(text)}</code></pre>'


def preformatted(text: str, label: str) -> str:
    """Text whose columns matter; a narrow screen scrolls it."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label)}"><pre>{escape(text)}</pre></div>'


def bullets(texts: Sequence[str]) -> str:
    """A list of lines."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def fold(summary: str, body: str) -> str:
    """What is shown on demand; `body` is HTML."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def table(
    caption: str, headings: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]], *, classes: Sequence[str] = ()
) -> str:
    """A table; headings are (title, whether its column is numbers), cells text.

    Args:
        classes: a class for each row, such as its verdict; empty for none.
    """
    head = "".join(
        f'<th scope="col"{_numeric(number)}>{escape(title) or "<span aria-label=mark></span>"}</th>'
        for title, number in headings
    )
    lines = []
    for index, row in enumerate(rows):
        cells = "".join(
            f'<th scope="row">{escape(cell)}</th>'
            if place == 0
            else f"<td{_numeric(headings[place][1])}>{escape(cell)}</td>"
            for place, cell in enumerate(row)
        )
        named = f' class="{escape(classes[index])}"' if index < len(classes) and classes[index] else ""
        lines.append(f"<tr{named}>{cells}</tr>")
    body, said = "".join(lines), escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{said}"><table><caption>{said}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _numeric(number: bool) -> str:
    return ' class="n"' if number else ""
