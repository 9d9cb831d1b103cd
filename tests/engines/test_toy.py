"""An engine, and an input, that nothing in `planner/` knows of: every way in has them from the declaration."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.cli.completion import candidates
from planner.contract import engine as table
from planner.contract.parser import parse
from planner.errors import UsageError
from planner.report.contracts.table import contract
from tests.cli.running import Run, run
from tests.engines.toy import OneMore

MODEL = "Qwen/Qwen3-0.6B"
REFRESH = str(Path(__file__).resolve().parents[2] / "tools" / "refresh_contract.py")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    table.engine_names()
    table.register("brickwork", "tests.engines.toy:BRICKWORK", "brickwork build")
    table.register("vllm-and-one", "tests.engines.toy:VLLM_AND_ONE")
    yield
    for name in ("brickwork", "vllm-and-one"):
        table._ENGINES.pop(name)
    table._PROGRAMS.pop(("brickwork", "build"))


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    return lambda *words: run(capsys, monkeypatch, *words)


def bricks(ask: Callable[..., Run], *words: str) -> dict[str, object]:
    found = ask("serve", MODEL, "--engine", "brickwork", "--gpu-memory", "8GiB", *words, "--format", "json")
    document = dict(json.loads(found.out))
    contract("serve").model_validate(document)
    return document


def test_serve_and_its_json(ask: Callable[..., Run]) -> None:
    """Four bricks, mortar and 1,024 tokens of a MiB on 8 GiB leave 2 GiB, 3 GiB without a cache: 3,072 tokens."""
    found = bricks(ask)
    assert (found["engine"], found["verdict"], found["command"]) == ("brickwork", "fits", f"brickwork build {MODEL}")
    (card,) = found["devices"]  # type: ignore[misc]
    assert [part["name"] for part in card["components"]] == ["bricks", "mortar"]
    assert card["free_bytes"] == 2 << 30
    assert found["kv_cache"]["max_model_len_that_fits"] == 3072  # type: ignore[index]
    assert found["deployment"]["bricks"] == 4  # type: ignore[index]


def test_its_lever_and_the_set_that_fits(ask: Callable[..., Run]) -> None:
    """Seven bricks, mortar and a GiB of cache are one too many; without mortar they fit."""
    found = bricks(ask, "-b", "7")
    assert (found["verdict"], found["shortfall_bytes"]) == ("does_not_fit", 1 << 30)
    (lever,) = found["levers"]  # type: ignore[misc]
    ((pulled,),) = [one["levers"] for one in found["plans"]]  # type: ignore[attr-defined]
    assert pulled["flag"] == "--dry"
    assert (lever["flag"], lever["saves_bytes"], lever["verdict"]) == ("--dry", 1 << 30, "fits")
    assert bricks(ask, "-b", "7", "--dry")["verdict"] == "fits"


def test_explain_table_help_and_compare(ask: Callable[..., Run]) -> None:
    asked = (MODEL, "--engine", "brickwork", "--gpu-memory", "8GiB")
    assert "bricks = 4,294,967,296 B (4.00 GiB) [exact]" in ask("explain", *asked).out
    assert "mortar" in ask("serve", *asked).out
    shown = ask("serve", "--engine", "brickwork", "--help-all").out
    assert "--bricks, -b N" in shown and "--dry" in shown and "--tensor-parallel-size" not in shown
    cells = json.loads(ask("compare", *asked, "--context", "1024,9000", "--format", "json").out)["rows"]
    assert [cell["verdict"] for cell in cells] == ["fits", "does_not_fit"]


def test_its_command_is_read_and_its_mistakes_are_named(ask: Callable[..., Run]) -> None:
    pasted = ask("serve", "brickwork", "build", MODEL, "--bricks", "2", "--gpu-memory", "8GiB", "--format", "json")
    assert json.loads(pasted.out)["deployment"]["bricks"] == 2
    asked = ("serve", MODEL, "--engine", "brickwork", "--gpu-memory", "8GiB")
    for words, message in (
        (("--brick", "2", "--bricks", "3"), "given twice"),
        (("--bricks", "none"), "--bricks is 'none'; expected a whole number"),
        (("--bricks", "0"), "--bricks is 0; expected 1 or more"),
        (("--kv-cache-dtype", "fp8"), "it is an option of --engine vllm"),
        (("--engine-version", "banana"), "--engine-version"),
    ):
        found = ask(*asked, *words)
        assert (found.status, found.err.count("\n")) == (2, 1) and message in found.err


def test_an_input_more_is_everywhere(ask: Callable[..., Run]) -> None:
    assert parse([OneMore], ["--brick_count=3"]).given == {"brick_count": 3}
    with pytest.raises(UsageError, match="--brick-count is 'x'; expected a whole number"):
        parse([OneMore], ["--brick-count", "x"])
    asked = ("serve", MODEL, "--engine", "vllm-and-one", "--gpu", "4090")
    document = json.loads(ask(*asked, "--brick-count", "3", "--format", "json").out)
    assert document["deployment"]["brick_count"] == 3
    assert "--brick-count 3" in document["command"]
    contract("serve").model_validate(document)
    assert ask(*asked, "--brick-count", "0").err == "vram-planner: --brick-count is 0; expected 1 or more\n"
    shown = ask("serve", "--engine", "vllm-and-one", "--help-all").out
    assert "Masonry:" in shown and "Bricks beside the card." in shown
    page = next(text for path, text in runpy.run_path(REFRESH)["pages"]().items() if path.name == "options.md")
    assert "| `--brick-count` | Bricks beside the card. |  | host |" in page
    assert candidates(["serve", "--engine", "vllm-and-one", "--brick"]) == ["--brick-count"]
    assert candidates(["serve", "--engine", "vllm", "--brick"]) == []
