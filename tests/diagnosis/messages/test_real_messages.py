"""Public messages of all programs: figures to the byte, class against the best label known."""

from __future__ import annotations

from typing import Any

import pytest

from planner.diagnosis import diagnose_text
from planner.diagnosis.remedies.catalogue import catalogue
from planner.diagnosis.result import CLASS_SENTENCES
from tests.diagnosis.accuracy import DOCUMENT, LACKS, document, messages, scores, share


@pytest.mark.parametrize("row", messages(), ids=lambda row: row["id"])
def test_figures_are_those_of_the_text_to_the_byte(row: dict[str, Any]) -> None:
    finding = diagnose_text(row["text"]).findings[0].to_json()
    found = {"device": finding["device"], **finding["figures"]}
    assert {name: found.get(name) for name in row["figures"]} == row["figures"]
    assert finding["class"] in CLASS_SENTENCES


def test_no_figure_is_made_up() -> None:
    """Only figures that a label names, or that stand beside them in the text (XLA's table has two more rows)."""
    known = {name for row in messages() for name in row["figures"]} | {"xla_constant_bytes", "xla_fragmentation_bytes"}
    for score in scores():
        assert score.finding is not None
        extra = set(score.finding.figures) - set(score.row["figures"])
        assert extra <= {"xla_constant_bytes", "xla_fragmentation_bytes", "available_kv_bytes"}, score.row["id"]
        assert set(score.finding.figures) <= known


def test_class_or_second_class_is_the_label_in_97_percent_and_98_where_it_is_sure() -> None:
    assert share(scores()) >= 0.97
    assert share([s for s in scores() if s.sure]) >= 0.98


def test_what_helped_is_among_the_first_two_actions_in_85_percent() -> None:
    known = [s for s in scores() if s.helped is not None]
    assert {s.row["id"] for s in known} == {s.row["id"] for s in scores() if s.row["label_kind"] == "confirmed"}
    assert sum(s.right_remedy for s in known) >= 0.85 * len(known)
    assert {name for s in known for name in s.helped or ()} <= set(catalogue()["actions"])


def test_class_or_second_class_is_the_label_in_85_percent_of_confirmed_messages() -> None:
    assert share([s for s in scores() if s.row["label_kind"] == "confirmed"]) >= 0.85


def test_the_first_class_alone_is_the_label_in_four_fifths() -> None:
    """The second class is no net to catch everything with."""
    assert share(scores(), first=True) >= 0.8
    assert share([s for s in scores() if s.row["label_kind"] == "confirmed"], first=True) >= 0.75


def test_every_miss_is_explained() -> None:
    assert {s.row["id"] for s in scores() if not s.either} == set(LACKS)


def test_each_message_is_one_finding_but_for_survived_warnings() -> None:
    for row in messages():
        findings = diagnose_text(row["text"]).findings
        assert [f.failure for f in findings[1:]] in ([], ["not_a_failure"]), row["id"]


def test_accuracy_page_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()
