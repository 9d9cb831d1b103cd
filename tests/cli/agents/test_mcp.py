"""The tools for agents, asked through the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.running import run

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of"
    " which 1.00 GiB is free."
)
SERVER = StdioServerParameters(command=sys.executable, args=["-m", "planner.cli", "mcp"])


def with_client(question: Callable[[Client], Awaitable[Any]]) -> Any:
    async def asked() -> Any:
        async with Client(stdio_client(SERVER)) as client:
            return await question(client)

    return asyncio.run(asyncio.wait_for(asked(), 120))


def call(name: str, **arguments: Any) -> Any:
    async def question(client: Client) -> Any:
        return await client.call_tool(name, arguments)

    return with_client(question)


def answer(name: str, **arguments: Any) -> dict[str, Any]:
    result = call(name, **arguments)
    assert not result.is_error, result.content
    return dict(json.loads(result.content[0].text))


def test_the_tools_are_listed_with_descriptions() -> None:
    async def question(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = with_client(question)
    assert {tool.name for tool in tools} == {
        "serve", "explain", "train", "pick", "compare", "size", "diagnose", "plan",
    }  # fmt: skip
    assert all(tool.description and tool.input_schema["properties"] for tool in tools)


def test_a_whole_answer_is_the_commands_and_a_short_one_is_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("serve", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "8192", "--format", "json")
    command = json.loads(run(capsys, monkeypatch, *words).out)
    options = {"gpu": "H100", "max_model_len": 8192}
    assert answer("serve", model="Qwen/Qwen3-8B", options=options, details=True) == command
    short = answer("serve", model="Qwen/Qwen3-8B", options=options)
    assert short["verdict"] == command["verdict"] and short["command"] == command["command"]
    assert len(json.dumps(short)) < min(8000, len(json.dumps(command)))
    assert short["devices"][0]["left_out"] == [
        f"components after the first 5 of {len(command['devices'][0]['components'])}"
    ]


ANSWERS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("train", {"model": "Qwen/Qwen3-8B", "options": {"gpu": "4090", "method": "qlora"}}, "verdict"),
    ("pick", {"model": "Qwen/Qwen3-8B"}, "rows"),
    ("compare", {"model": "Qwen/Qwen3-8B", "options": {"gpu": ["4090", "L40S"]}}, "rows"),
    ("size", {"model": "Qwen/Qwen3-8B", "options": {"gpu": "H100", "users": 20}}, "rows"),
    ("diagnose", {"text": [MESSAGE]}, "findings"),
    ("plan", {"source": "vllm serve Qwen/Qwen3-8B --max-model-len 4096", "options": {"gpu": "H100"}}, "launch"),
    ("explain", {"model": "Qwen/Qwen3-8B", "options": {"gpu": "H100"}}, "devices"),
)
QWEN = "Qwen/Qwen3-8B"
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("serve", {"model": "/etc/passwd", "options": {"gpu": "4090"}}, "files are not read"),
    ("serve", {"model": "../x/y", "options": {"gpu": "4090"}}, "files are not read"),
    ("serve", {"model": QWEN, "options": {"gpu": "4090", "config": "x.yaml"}}, "files of the machine"),
    ("serve", {"model": QWEN, "options": {"gpu": "-"}}, "gpu"),
    ("serve", {"model": QWEN, "options": {"gpu": "4090", "speculative_config": {"model": "/etc"}}}, "not read"),
    ("serve", {"model": QWEN, "options": {"gpu": "4090", "max_model_lne": 1}}, "nearest: max-model-len"),
    ("pick", {"model": QWEN, "options": {"prices": "/etc/passwd"}}, "files of the machine"),
    ("diagnose", {"text": []}, "1 to 8 texts"),
    ("diagnose", {"text": ["x" * (5 << 20)]}, "4 MiB"),
    ("plan", {"source": "/etc/passwd"}, ""),
    ("plan", {"source": "--help"}, "source"),
)


def results(questions: tuple[tuple[str, dict[str, Any], str], ...]) -> list[Any]:
    async def asked(client: Client) -> Any:
        return [await client.call_tool(name, arguments) for name, arguments, _ in questions]

    return list(with_client(asked))


def test_every_tool_answers() -> None:
    for (name, _, key), result in zip(ANSWERS, results(ANSWERS), strict=True):
        assert not result.is_error, (name, result.content)
        assert json.loads(result.content[0].text)[key], name


def test_files_are_not_read_and_mistakes_are_one_line() -> None:
    for (name, arguments, words), result in zip(REFUSED, results(REFUSED), strict=True):
        text = result.content[0].text
        assert result.is_error, (name, str(arguments)[:200])
        assert words in text and "root:" not in text and "Traceback" not in text and len(text) < 500, text


def test_a_missing_extra_is_named(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "mcp" or name.startswith(("mcp.", "planner.cli.agents.s"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    found = run(capsys, monkeypatch, "mcp")
    assert found.status == 2 and "pip install 'vram-planner[mcp]'" in found.err and found.err.count("\n") == 1
