"""Every command in the README and the docs runs, and the output shown is what it prints."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.cli import COMMANDS, main
from planner.model.config import RawConfig
from planner.model.tensors import parameters
from tests.local_server import Quiet, serving

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

CRASH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.18 GiB is free. Of the allocated memory 19.90 GiB is allocated by PyTorch, and 1.42 GiB is reserved by "
    "PyTorch but unallocated.\n"
)


SERVE_LOG = """\
INFO 10-02 12:00:01 [utils.py:326] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192}
INFO 10-02 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen3-8B', \
max_seq_len=8192
INFO 10-02 12:00:40 [gpu_model_runner.py:3600] Model loading took 15.27 GiB memory and 3.2 seconds
INFO 10-02 12:01:10 [gpu_worker.py:298] Available KV cache memory: 53.54 GiB
INFO 10-02 12:01:11 [kv_cache_utils.py:1087] GPU KV cache size: 389,856 tokens
"""
CASE = {
    "id": "mine-1",
    "model": "Qwen/Qwen3-8B",
    "config": "Qwen/Qwen3-8B",
    "deployment": {"engine_version": "0.19.0", "gpu": "H100", "max_model_len": 8192},
    "measured": {"weights_gib": 15.27},
}
# 389,856 tokens in blocks of 16, as the log above
METRICS = (
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",'
    'num_gpu_blocks="24366"} 1.0\n'
)
# Blocks of code and headings
NO_PROSE = re.compile(r"^```.*?^```|^#[^\n]*", re.MULTILINE | re.DOTALL)
# `vram-planner ...`, or a command with an option, in the text
INLINE = re.compile(rf"`((?:vram-planner )?(?:{'|'.join(COMMANDS)})\b[^`]*)`")
# A word in capitals stands for something that the reader fills in.
PLACEHOLDER = re.compile(r"(?<![\w/.-])[A-Z]{2,}(?![\w/.-])")


def commands() -> list[tuple[str, str]]:
    """(page, command) of every vram-planner line in a shell block; what is piped into it comes first."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.splitlines():
                command = line[line.index("vram-planner ") :] if "vram-planner " in line else ""
                if command.split(" ")[:1] == ["vram-planner"] and command.split()[1].strip("'\"") in COMMANDS:
                    piped = f"{line.partition(' | ')[0]} | " if line.startswith("echo ") else ""
                    found.append((page.name, piped + command.split("  #")[0].strip()))
    return found


def inline_commands() -> list[tuple[str, str]]:
    """(page, command) of every command with its arguments in the text of a page; those that name a command only, with
    --help."""
    found = set()
    for page in PAGES:
        for shown in INLINE.findall(NO_PROSE.sub("", page.read_text())):
            words = shown.removeprefix("vram-planner ").split()
            if PLACEHOLDER.search(shown) or not ("--" in shown or shown.startswith("vram-planner ")):
                continue
            alone = len(words) == 1 and words[0] != "validate"
            found.add((page.name, " ".join(["vram-planner", *words, *(["--help"] if alone else [])])))
    return sorted(found)


class Metrics(Quiet):
    """The metrics endpoint of a running vLLM."""

    def do_GET(self) -> None:
        self.answer(METRICS.encode())


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that stands for the reader's own."""
    with serving(Metrics) as found:
        yield found


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    piped, _, last = command.rpartition(" | ")
    if piped:
        text = io.TextIOWrapper(io.BytesIO(shlex.split(piped)[1].encode()))
        monkeypatch.setattr(sys, "stdin", text)
    monkeypatch.setattr(sys, "argv", shlex.split(last.partition(" > ")[0]))
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
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "serve.sh").write_text("vllm serve Qwen/Qwen3-8B --max-model-len 8192\n")
    monkeypatch.chdir(tmp_path)
    status, out, err = run(command, capsys, monkeypatch)
    assert status in (0, 1), err
    assert out.strip()


@pytest.mark.parametrize(("page", "command"), inline_commands())
def test_a_command_in_the_text_runs(
    page: str,
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    server: str,
) -> None:
    """The files and the server that the text speaks of are there."""
    (tmp_path / "crash.log").write_text(CRASH)
    (tmp_path / "serve.log").write_text(SERVE_LOG)
    (tmp_path / "mine.jsonl").write_text(json.dumps(CASE))
    monkeypatch.chdir(tmp_path)
    status, out, err = run(command.replace("http://localhost:8000", server), capsys, monkeypatch)
    assert status in (0, 1), err
    assert out.strip()


def test_there_are_commands_in_the_text() -> None:
    assert {command.split()[1] for _, command in inline_commands()} >= {"probe", "validate"}
    assert any("--url" in command for _, command in inline_commands())


def test_the_example_of_a_family_builds_a_model() -> None:
    """The module that CONTRIBUTING.md shows, on the config that it describes: Llama's."""
    (source,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(source, names)
    config = json.loads((ROOT / "model_configs" / "meta-llama--Llama-3.1-8B-Instruct.json").read_text())
    assert parameters(names["build"](RawConfig(config))) == 8_030_261_248  # as published


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
