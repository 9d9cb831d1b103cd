"""Completion: what a shell offers at Tab, and bash's own function."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli import COMMANDS
from planner.cli.completion import candidates
from tests.cli.running import run

ROOT = Path(__file__).resolve().parents[2]


def test_commands() -> None:
    assert set(candidates([""])) == {*COMMANDS, "--help", "--version"}
    assert candidates(["ser"]) == ["serve"] and candidates(["probe", ""]) == ["serve", "train", "card", "engine"]
    assert candidates(["nothing", ""]) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_options(command: str) -> None:
    assert "--help" in candidates([command, "--h"])
    if command not in ("completion", "web", "mcp", "probe", "schema"):
        assert "--format" in candidates([command, "--f"])


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        (("serve", "--max-model"), {"--max-model-len"}, {"--ctx-size"}),
        (("serve", "--engine", "llama.cpp", "--"), {"--ctx-size", "--no-mmap"}, {"--max-model-len"}),
        (("serve", "--max_model"), {"--max-model-len"}, set()),
        (("serve", "--engine", ""), {"vllm", "sglang", "ollama"}, set()),
        (("serve", "--engine="), {"--engine=vllm"}, {"vllm"}),
        (("serve", "--gpu", "=", "h100-s"), {"h100-sxm-80gb"}, {"a100-sxm-80gb"}),
        (("serve", "Qwen/Qwen3-8"), {"Qwen/Qwen3-8B"}, {"Qwen/Qwen2-7B"}),
        (("serve", "Qwen/Qwen3-8B", "--accept", ""), {"tight", "fits"}, {"Qwen/Qwen3-8B"}),
        (("train", "--method", "q"), {"qlora", "qdora"}, {"lora"}),
        (("probe", "train", "--opt"), {"--optim"}, set()),
        (("probe", "engine", "--url", ""), set(), {"Qwen/Qwen3-8B"}),
        (("diagnose", "--la"), {"--launch"}, set()),
        (("models", "--form"), {"--format"}, set()),
        (("schema", "ser"), {"serve"}, set()),
        (("serve", "--enforce-eager", "Qwen/Qwen3-8"), {"Qwen/Qwen3-8B"}, set()),  # a switch takes no value
        (("serve", "--engine", "banana", "--"), set(), {"--gpu"}),
    ],
)
def test_candidates(words: tuple[str, ...], some: set[str], none: set[str]) -> None:
    found = set(candidates(words))
    assert some <= found and not none & found


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_calls_it(tmp_path: Path) -> None:
    program = tmp_path / "vram-planner"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m planner.cli "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    script = (
        "source <(vram-planner completion bash); COMP_WORDS=(vram-planner serve Qwen/Qwen3-8B --gpu rtx-409);"
        ' COMP_CWORD=4; _vram_planner; printf "%s\\n" "${COMPREPLY[@]}"; complete -p vram-planner'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert "rtx-4090" in done.stdout.split() and "-F _vram_planner" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(capsys, monkeypatch, "completion", shell)
    assert found.status == 0 and "vram-planner completion --words" in found.out
    wrong = run(capsys, monkeypatch, "completion", "cmd")
    assert wrong.status == 2 and "bash, zsh, fish" in wrong.err
