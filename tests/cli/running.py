"""Running the command in this process, as the entry point does."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from planner.cli import main


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Run:
    monkeypatch.setattr(sys, "argv", ["vram-planner", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    code = stopped.value.code
    return Run(code if isinstance(code, int) else 0, captured.out, captured.err)
