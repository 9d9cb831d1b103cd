"""Inputs without an end, without a beginning, and names that are hostile."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from planner.diagnosis import diagnose, sources
from planner.errors import NotRecognised, SourceError

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux devices and pipes")
MESSAGE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB.\n"


@LINUX
def test_a_device_without_an_end_stops_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 8 << 20)
    with pytest.raises(NotRecognised, match="zero: nothing was recognised"):
        diagnose(Path("/dev/zero"))


@LINUX
def test_a_pipe_that_never_ends_is_diagnosed_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_BYTES", 4 << 20)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with open(path, "wb", buffering=0) as pipe:
            try:
                while True:
                    pipe.write(MESSAGE * 100)
            except BrokenPipeError:
                return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    diagnosis = diagnose(path)
    assert diagnosis.findings[0].message.repeated > 10_000
    assert any("no end in sight" in note for note in diagnosis.notes)
    writer.join(timeout=10)


@LINUX
def test_a_silent_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "QUIET_SECONDS", 0.2)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(SourceError, match="empty"):
        diagnose(path)
    read_end = os.open(path, os.O_RDWR)
    try:
        os.write(read_end, MESSAGE)
        diagnosis = diagnose(path)
    finally:
        os.close(read_end)
    assert diagnosis.findings[0].figures["tried_bytes"] == 136 << 20
    assert any("no new byte" in note for note in diagnosis.notes)


def test_closed_standard_input_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin in (None, io.StringIO("text")):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SourceError, match="standard input"):
            diagnose("-")


def test_a_hostile_name_is_not_printed_raw(tmp_path: Path) -> None:
    for name in ("\x1b]0;owned\x07", "\u202egpj.exe", "a\nb", "\udcff"):
        with pytest.raises(SourceError) as caught:
            diagnose(tmp_path / name)
        assert str(caught.value).isprintable()
        str(caught.value).encode("utf-8")


def test_an_unrecognised_text_shows_the_lines_most_like_a_message() -> None:
    text = "step 1\nRuntimeError: the flux capacitor failed: insufficient gigawatts\nstep 2\nbye\n" + "noise\n" * 50
    with pytest.raises(NotRecognised, match="flux capacitor failed"):
        diagnose(text)
