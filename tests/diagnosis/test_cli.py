"""The command: formats, exit status, standard input, several inputs."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path

import pytest

from planner.cli.diagnose import diagnose
from planner.diagnosis import diagnose as diagnose_function
from planner.errors import NotRecognised, SourceError, UsageError
from tests.diagnosis.messages.test_assembly import MESSAGE
from tests.diagnosis.states.allocator import Allocator, OutOfMemory


def run(*arguments: str, stdin: str | None = None) -> str:
    """What the command prints."""
    printed, given = io.StringIO(), io.TextIOWrapper(io.BytesIO((stdin or "").encode()))
    patch = pytest.MonkeyPatch()
    try:
        patch.setattr("sys.stdout", printed)
        patch.setattr("sys.stdin", given)
        assert diagnose(list(arguments)) == 0
    finally:
        patch.undo()
    return printed.getvalue()


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text(f"step 1\n{MESSAGE}\n")
    return str(path)


def test_table_begins_with_the_verdict(log: str) -> None:
    assert run(log).startswith("PyTorch: GPU 3 is full")
    text = run(log, "--more")
    for part in (
        "device_full",
        "tried_bytes",
        "226.0 MiB",
        "rule:",
        "What would change this",
        "What to do, in order",
        "Careful",
        "line 2",
    ):
        assert part in text


def test_json_is_the_contract(log: str) -> None:
    document = json.loads(run(log, "--format", "json"))
    assert document["schema"] == 2
    (finding,) = document["findings"]
    assert {
        "program",
        "version_hint",
        "class",
        "second_class",
        "confidence",
        "figures",
        "evidence",
        "actions",
        "cautions",
    } <= (set(finding))
    assert finding["figures"]["tried_bytes"] == 226 << 20
    assert set(finding["actions"][0]) == {"name", "do", "setting", "why", "command"}
    assert document == diagnose_function(log).to_json()


def test_csv_and_markdown(log: str) -> None:
    (row,) = csv.DictReader(io.StringIO(run(log, "--format", "csv")))
    assert (row["class"], row["tried_bytes"], row["device"]) == ("device_full", str(226 << 20), "3")
    markdown = run(log, "--format", "markdown")
    assert markdown.startswith("## device_full") and "tried_bytes" in markdown


def test_standard_input(log: str) -> None:
    assert run("-", stdin=MESSAGE).startswith("PyTorch: GPU 3 is full")
    assert run(stdin=MESSAGE).startswith("PyTorch: GPU 3 is full")
    with pytest.raises(UsageError, match="once"):
        run("-", "-", stdin=MESSAGE)


def test_snapshot_in_every_format(tmp_path: Path) -> None:
    allocator = Allocator(256 << 20)
    allocator.allocate(100 << 20, "weights")
    with pytest.raises(OutOfMemory):
        allocator.allocate(200 << 20, "logits")
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    table = run(str(path), "--more")
    assert "[####" in table and "weights (weights.py:7)" in table
    assert "```" in run(str(path), "--format", "markdown")
    tables = json.loads(run(str(path), "--format", "json"))["findings"][0]["tables"]
    assert tables["segments"][0]["size_bytes"] == 100 << 20
    assert tables["states"]["active_bytes"] == 100 << 20
    assert "tried_bytes" in run(str(path), "--format", "csv")


def test_lengths(tmp_path: Path) -> None:
    assert "2 tiers" in run("--lengths", "100,200,300x50,1000")
    path = tmp_path / "lengths"
    path.write_text("100 200\n300x50\n1000\n")
    document = json.loads(run("--lengths", str(path), "--max-waste", "10", "--format", "json"))
    assert document["findings"] == []
    assert [t["length"] for t in document["buckets"]["tiers"]] == [304, 1000]
    assert "padded_tokens" in run("--lengths", str(path), "--format", "csv")


def test_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "calm").write_text("all is well\n")
    cases = [
        ([str(tmp_path / "missing")], SourceError, "No such file"),
        ([str(tmp_path)], SourceError, "folder"),
        ([str(tmp_path / "empty")], SourceError, "empty"),
        ([str(tmp_path / "calm")], NotRecognised, "looked for"),
        (["a\0b"], SourceError, "null"),
        (["--lengths", "abc"], UsageError, "not a length"),
        (["--lengths", "5", "--max-waste", "200"], UsageError, "per cent"),
    ]
    for arguments, error, word in cases:
        with pytest.raises(error, match=word) as caught:
            run(*arguments)
        assert "\n" not in str(caught.value)


def test_one_bad_input_among_several_is_named(log: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(SourceError, match=r"bad\.pickle: refused: opcode GLOBAL"):
        run(log, str(bad))


def test_text_and_paths_both_go_to_the_function(log: str) -> None:
    assert diagnose_function(MESSAGE).findings[0].figures == diagnose_function(Path(log)).findings[0].figures
    with pytest.raises(SourceError, match="nothing to diagnose"):
        diagnose_function()


def test_terminal_controls_of_a_log_are_not_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(MESSAGE.replace("GPU 3", "GPU \x1b]0;owned\x07\x9b31m\u202e3"))
    for form in ("table", "json", "csv", "markdown"):
        text = run(str(path), "--format", form)
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_the_same_advice_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "ranks.log"
    path.write_text("\n\n".join(MESSAGE.replace("GPU 3", f"GPU {n}") for n in range(8)))
    text = run(str(path), "--more")
    assert text.count("frees no live tensor") == 1
    assert "8 GPUs, 8 messages" in text.replace("\n", " ")
    (finding,) = json.loads(run(str(path), "--format", "json"))["findings"]
    assert (finding["repeated"], finding["devices"]) == (8, list(range(8)))


def test_an_input_without_anything_is_named_beside_one_that_has(log: str, tmp_path: Path) -> None:
    calm = tmp_path / "calm.log"
    calm.write_text("all is well")
    document = json.loads(run(log, str(calm), "--format", "json"))
    assert len(document["findings"]) == 1
    assert document["notes"] == [f"{calm}: nothing was recognised"]
    with pytest.raises(NotRecognised, match=r"calm\.log: nothing was recognised"):
        run(str(calm))
