"""Streams as terminals and scripts hand them over: closed, of an old encoding, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "planner.cli")
ANSWERS = (
    ("serve", "Qwen/Qwen3-8B", "--gpu", "4090"),
    ("explain", "Qwen/Qwen3-8B", "--gpu", "4090"),
    ("train", "Qwen/Qwen3-8B", "--gpu", "4090"),
    ("gpus",),
    ("formats",),
)


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii"])
def test_every_answer_can_be_printed_in_old_encodings(encoding: str) -> None:
    for words in ANSWERS:
        done = subprocess.run(
            [*PROGRAM, *words], capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, timeout=120
        )
        assert done.returncode in (0, 1), (words, done.stderr)
        assert done.stderr == b""
        text = done.stdout.decode(encoding)
        assert "\\u" not in text and "\\x" not in text, words


@pytest.mark.parametrize(("encoding", "shown"), [("cp1252", "é\\u2603.log"), ("ascii", "\\xe9\\u2603.log")])
def test_a_name_that_the_encoding_lacks_is_escaped(encoding: str, shown: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "diagnose", "é☃.log"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"},
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.decode(encoding).strip() == f"vram-planner: {shown}: No such file or directory"


def test_a_page_is_utf_8_whatever_the_terminal_is(tmp_path: Path) -> None:
    words = ["serve", "Qwen/Qwen3-8B", "--gpu", "4090", "--format", "html"]
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "cp1252"}, timeout=120
    )
    assert done.returncode == 1  # bfloat16 weights and 40,960 tokens are too much for this card
    assert 'charset="utf-8"' in done.stdout.decode("utf-8").lower()


@pytest.mark.parametrize("words", [("diagnose", "-"), ("plan", "-", "--gpu", "4090"), ("pick", "--gpu", "-")])
def test_a_closed_standard_input_is_one_line(words: tuple[str, ...]) -> None:
    command = " ".join([*PROGRAM, *words]) + " <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("vram-planner: ")


@pytest.mark.parametrize("words", [("diagnose", "-"), ("validate",)])
def test_ctrl_c_is_one_line(words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    assert process.stdin is not None and process.stderr is not None
    assert process.wait(timeout=30) == 130
    assert process.stderr.read() == "vram-planner: interrupted\n"
    process.stdin.close()
    process.stderr.close()
