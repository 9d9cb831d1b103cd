"""Nothing of untrusted origin reaches a terminal as a control character, and faults of ours are not verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import planner.cli
from planner.model.names.bundled import bundled_names
from planner.printable import without_controls
from tests.cli.running import run

_EVIL = "x\x1b[31m\x1b]0;title\x07\x9b2J\u202ey"


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "Qwen/Qwen3-8B", "--gpu", "4090", f"--{_EVIL}"),
        ("serve", "Qwen/Qwen3-8B", "--gpu", _EVIL),
        ("serve", _EVIL, "--gpu", "4090"),
        ("train", "Qwen/Qwen3-8B", "--gpu", "4090", "--optim", _EVIL),
        ("diagnose", f"{_EVIL}.log"),
        ("plan", f"vllm serve {_EVIL}"),
        ("check", _EVIL),
        ("formats", _EVIL),
        (_EVIL,),
    ],
)
def test_words_are_said_without_controls(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(capsys, monkeypatch, *words)
    assert done.status == 2
    said = done.out + done.err
    assert said == without_controls(said) and "Traceback" not in said


@pytest.mark.parametrize("field", ["architectures", "model_type"])
def test_a_configs_text_is_said_without_controls(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(bundled_names()["Qwen/Qwen3-8B"].read_text("utf-8"))
    config[field] = [_EVIL] if isinstance(config[field], list) else _EVIL
    (tmp_path / "config.json").write_text(json.dumps(config))
    for command in ("serve", "explain", "formats"):
        done = run(capsys, monkeypatch, command, str(tmp_path), *(("--gpu", "4090") if command != "formats" else ()))
        said = done.out + done.err
        assert said == without_controls(said) and "Traceback" not in said


def test_a_fault_of_ours_is_no_verdict(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(asked: str | None, arguments: list[str]) -> object:
        raise TypeError("unhashable")

    monkeypatch.setattr(planner.cli, "run", broken)
    done = run(capsys, monkeypatch, "serve", "x")
    assert done.status == 70
    assert done.err.count("\n") == 1 and "TypeError" in done.err


@pytest.mark.parametrize("rope", [{"type": ["x"], "factor": 4.0}, {"rope_type": "x", "factor": 4.0}, {"type": "Yarn "}])
def test_a_rope_type_that_is_not_known_stretches_nothing(
    rope: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**json.loads(bundled_names()["Qwen/Qwen3-8B"].read_text("utf-8")), "rope_scaling": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run(capsys, monkeypatch, "serve", str(tmp_path), "--gpu", "H100")
    assert done.status == 2 and "rope_type" in done.err and done.err.count("\n") == 1
