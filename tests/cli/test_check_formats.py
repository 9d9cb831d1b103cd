"""`check` for continuous integration: JUnit and SARIF say what the exit status says."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.running import run

FITS = "vllm serve Qwen/Qwen3-0.6B --max-model-len 4096\n"
TOO_LARGE = "vllm serve Qwen/Qwen3-32B --max-model-len 4096\n"
NO_MODEL = 'vllm serve "$MODEL"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("a.sh", FITS), ("b.sh", TOO_LARGE), ("c.sh", NO_MODEL)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_junit(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(capsys, monkeypatch, "check", str(folder), "--gpu", "4090", "--format", "junit")
    suite = ElementTree.fromstring(found.out)
    assert found.status == 1
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    by_file = {Path(case.get("classname", "")).name: case for case in suite}
    assert list(by_file["a.sh"]) == []
    assert [(one.tag, one.get("type")) for one in by_file["b.sh"]] == [("failure", "does_not_fit")]
    assert [(one.tag, one.get("type")) for one in by_file["c.sh"]] == [("error", "unknown")]


def test_sarif(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(capsys, monkeypatch, "check", str(folder), "--gpu", "4090", "--format", "sarif")
    (job,) = json.loads(found.out)["runs"]
    said = [(one["ruleId"], one["level"]) for one in job["results"]]
    assert found.status == 1 and said == [("does_not_fit", "error"), ("unknown", "warning")]
    assert {one["ruleId"] for one in job["results"]} <= {rule["id"] for rule in job["tool"]["driver"]["rules"]}
    assert all(
        one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith(".sh") for one in job["results"]
    )


def test_control_characters_stay_out_of_xml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.sh").write_text("vllm serve 'x\x1b[31m\x01<&>y'\n")
    found = run(capsys, monkeypatch, "check", str(tmp_path), "--gpu", "4090", "--format", "junit")
    ElementTree.fromstring(found.out)
    assert "\x1b" not in found.out and "\x01" not in found.out
