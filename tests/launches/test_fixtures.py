"""The 45 launch forms: form, outcome, plans and error as expected; secrets nowhere; nothing run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from planner.launches.reading import read_launch
from planner.launches.record import Launch, Settings
from planner.report.launch import launch_json, launch_table
from tests.launches.comparing import DATA, differences, expectation, fixtures, noted

NAMES = fixtures()


def read(name: str) -> Launch:
    file = expectation(name)["file"]
    return read_launch((DATA / file).read_text("utf-8"), name=file, settings=Settings(folder=str(DATA)))


@pytest.mark.parametrize("name", NAMES)
def test_form_is_read_as_expected(name: str) -> None:
    assert differences(read(name), expectation(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_is_printed(name: str) -> None:
    launch = read(name)
    printed = json.dumps(launch_json(launch)) + launch_table(launch) + repr(launch.error)
    for secret in expectation(name)["never_print"]:
        assert secret not in printed


@pytest.mark.parametrize("name", [name for name in NAMES if "must_not_exist" in expectation(name)])
def test_nothing_is_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read(name)
    assert list(tmp_path.iterdir()) == []


def test_notes_are_said() -> None:
    wanted = [(name, note) for name in NAMES for note in expectation(name)["notes"]]
    missed = [(name, note) for name, note in wanted if not noted(note, _said(name))]
    assert len(missed) <= 0.1 * len(wanted), missed


def _said(name: str) -> list[str]:
    launch = read(name)
    return [*launch.notes, *launch.needs, *launch.unread]


@pytest.mark.parametrize("name", [name for name in NAMES if (expectation(name)["error"] or {}).get("within_seconds")])
def test_hostile_forms_end_in_time(name: str) -> None:
    start = time.perf_counter()
    read(name)
    assert time.perf_counter() - start < expectation(name)["error"]["within_seconds"]
