"""Rows as a table for people, or as JSON, CSV or Markdown.

People see the columns, rounded and with a unit in the heading; JSON and CSV carry every field of the rows as it is
(sizes in bytes, null and an empty cell for what is unknown).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from planner.report.printer import Heading, Width, table
from planner.version import SCHEMA

JSON_SCHEMA = SCHEMA


class Format(str, Enum):
    """The forms in which every command can answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"

    def __str__(self) -> str:
        return self.value


def plain(value: object) -> str:
    """A cell as it stands: "-" for None, yes and no, thousands separated."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table for people: a field of the rows, its heading, how a value is written.

    Args:
        importance: 0 stays where there is no room; of the others the highest number leaves first.
    """

    field: str
    heading: str
    text: Callable[[object], str] = plain
    right: bool = False
    importance: int = 0


def render_rows(
    rows: Sequence[Mapping[str, object]],
    *,
    columns: Sequence[Column],
    format: Format | str,
    query: Mapping[str, object],
    width: Width = "terminal",
    title: str = "vram-planner",
    plotted: tuple[str, str, str] | None = None,
) -> str:
    """The rows in the format asked for, without a newline at the end.

    JSON is {"schema", "query", "rows"}, with all fields. CSV has all fields of the first row, lists joined with ";".

    Args:
        title: of a page; plotted: its fields to draw, across, up, and what names a dot.

    Raises:
        ValueError: no such format.
    """
    wanted = Format(format)
    if wanted is Format.JSON:
        document = {"schema": JSON_SCHEMA, "query": dict(query), "rows": [dict(row) for row in rows]}
        return json.dumps(document, indent=2, ensure_ascii=False)
    if wanted is Format.CSV:
        return _csv(rows, [column.field for column in columns] if not rows else list(rows[0]))
    if wanted is Format.HTML:
        from planner.report.html.results import rows_page  # only a page pays for it

        return rows_page(title, rows, columns, query=query, plotted=plotted)
    return _table(rows, columns, markdown=wanted is Format.MARKDOWN, width=width)


def _csv(rows: Sequence[Mapping[str, object]], fields: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        writer.writerow([_csv_cell(row.get(field)) for field in fields])
    return text.getvalue().rstrip("\n")


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ";".join(str(_csv_cell(item)) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value


def _table(rows: Sequence[Mapping[str, object]], columns: Sequence[Column], *, markdown: bool, width: Width) -> str:
    cells = [[column.text(row.get(column.field)) for column in columns] for row in rows]
    headings = [Heading(title=column.heading, right=column.right, importance=column.importance) for column in columns]
    return table(cells, headings, markdown=markdown, width=width)
