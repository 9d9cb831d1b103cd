"""The JSON contract: what is printed matches its model, and the generated pages are fresh."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from planner.report.contracts.table import contract, contract_names
from tests.cli.running import run

ROOT = Path(__file__).resolve().parents[2]
ASKED = [
    ("serve", "Qwen/Qwen3-8B", "--gpu", "H100"),
    ("serve", "Qwen/Qwen3-32B", "--gpu", "4090", "--goal", "context"),
    ("serve", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "10M"),
    ("serve", "meta-llama/Llama-3.2-1B", "--engine", "transformers", "--gpu", "A6000"),
    ("train", "Qwen/Qwen3-8B", "--gpu", "4090"),
    ("size", "Qwen/Qwen3-8B", "--gpu", "H100", "--gpu", "T4", "--users", "10", "--price", "2"),
    ("compare", "Qwen/Qwen3-8B", "--gpu", "H100", "-q", "none,fp8", "--max-model-len", "8K,10M"),
    ("gpus", "h100"),
    ("models", "qwen3-8b"),
    ("formats", "Qwen/Qwen3-8B"),
    ("engines",),
]


@pytest.mark.parametrize("words", ASKED, ids=lambda words: "-".join(words[:2]))
def test_what_is_printed_matches_its_model(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    got = run(capsys, monkeypatch, *words, "--format", "json")
    contract(words[0]).model_validate(json.loads(got.out))


def test_generated_pages_are_fresh() -> None:
    pages = runpy.run_path(str(ROOT / "tools" / "refresh_contract.py"))["pages"]()
    stale = [str(path) for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    assert not stale, "python tools/refresh_contract.py writes them"


def test_every_schema_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in contract_names():
        found = json.loads(run(capsys, monkeypatch, "schema", name).out)
        assert found["title"].lower() == name and "properties" in found
    assert run(capsys, monkeypatch, "schema", "nonsense").status == 2
