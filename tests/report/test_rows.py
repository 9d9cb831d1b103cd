"""Rows in the four formats."""

import csv
import io
import json

import pytest

from planner.report.rows import Column, render_rows

ROWS: list[dict[str, object]] = [
    {"name": "a|b", "size_bytes": 1_500_000, "known": True, "tags": ["x", "y"]},
    {"name": "0123", "size_bytes": None, "known": False, "tags": []},
]
COLUMNS = (Column(field="name", heading="Name"), Column(field="size_bytes", heading="Bytes", right=True))


def test_table_shows_the_columns_and_leaves_text_alone() -> None:
    lines = render_rows(ROWS, columns=COLUMNS, format="table", query={}).splitlines()
    assert lines[0].split() == ["Name", "Bytes"]
    assert lines[2].split() == ["a|b", "1,500,000"]
    assert lines[3].split() == ["0123", "-"]  # not the number 123


def test_markdown_keeps_bars_inside_a_cell() -> None:
    lines = render_rows(ROWS, columns=COLUMNS, format="markdown", query={}).splitlines()
    assert lines[1].endswith(":|")
    assert "a\\|b" in lines[2]


def test_json_has_every_field_and_the_question() -> None:
    document = json.loads(render_rows(ROWS, columns=COLUMNS, format="json", query={"text": "q"}))
    assert document == {"schema": 2, "query": {"text": "q"}, "rows": ROWS}


def test_csv_has_every_field() -> None:
    rows = list(csv.DictReader(io.StringIO(render_rows(ROWS, columns=COLUMNS, format="csv", query={}))))
    assert rows[0] == {"name": "a|b", "size_bytes": "1500000", "known": "true", "tags": "x;y"}
    assert rows[1] == {"name": "0123", "size_bytes": "", "known": "false", "tags": ""}


@pytest.mark.parametrize("format", ["table", "markdown", "csv"])
def test_no_rows_leave_the_headings(format: str) -> None:
    text = render_rows([], columns=COLUMNS, format=format, query={})
    assert text.splitlines()[0].replace("|", " ").replace(",", " ").split()[0] in ("Name", "name")
    assert "-" not in text or len(text.splitlines()) == 2


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="xml"):
        render_rows(ROWS, columns=COLUMNS, format="xml", query={})
