"""Published speeds against the planned band, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.report.measured.accuracy_speed import speed_page
from planner.validation.speeds import score_of, score_speeds, speed_cases

ROWS = score_speeds(speed_cases())


@pytest.mark.parametrize(("several", "share"), [(False, 0.9), (True, 0.8)])
def test_published_speeds_lie_in_the_band(several: bool, share: float) -> None:
    score = score_of(row for row in ROWS if (row.cards > 1) is several)
    assert score.inside >= share * score.rows
    assert 0.85 <= score.ratio <= 1.2
    assert score.width <= 2.2


def test_every_row_has_a_band() -> None:
    assert [row.case["id"] for row in ROWS if row.reason] == []
    assert len({row.case["id"] for row in ROWS}) == len(ROWS)


def test_the_page_is_fresh() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "accuracy_speed.md"
    assert page.read_text("utf-8") == speed_page()
