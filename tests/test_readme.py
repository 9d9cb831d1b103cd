"""Every command in the README and the docs runs, and the output shown is what it prints."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from planner.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

CRASH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.18 GiB is free. Of the allocated memory 19.90 GiB is allocated by PyTorch, and 1.42 GiB is reserved by "
    "PyTorch but unallocated.\n"
)


def commands() -> list[tuple[str, str]]:
    """(page, command) of every vram-planner line in a shell block."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.splitlines():
                command = line[line.index("vram-planner ") :] if "vram-planner " in line else ""
                if command.split(" ")[:1] == ["vram-planner"] and command.split()[1].strip("'\"") in COMMANDS:
                    found.append((page.name, command.split("  #")[0].strip()))
    return found


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    code = stopped.value.code
    return code if isinstance(code, int) else 0, captured.out, captured.err


def test_there_are_commands() -> None:
    assert len(commands()) >= 5


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_shown_command_runs(
    page: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "crash.log").write_text(CRASH)
    monkeypatch.chdir(tmp_path)
    status, out, err = run(command, capsys, monkeypatch)
    assert status in (0, 1), err
    assert out.strip()


def test_the_main_jobs_output_is_the_one_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "README.md").read_text()
    match = re.search(
        r"<!-- ci: main job -->\n```sh\n(.*?)\n```.*?<!-- output: main job -->\n```\n(.*?)```", text, re.DOTALL
    )
    assert match is not None
    command = match[1][match[1].rindex("vram-planner serve") :]
    _, out, _ = run(command, capsys, monkeypatch)
    assert [line.rstrip() for line in out.splitlines()] == [line.rstrip() for line in match[2].splitlines()]
