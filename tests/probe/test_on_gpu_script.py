"""The script for a GPU: what it would run, and that it runs (on the CPU, one configuration)."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from planner.training.recipe import Recipe

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "probe_on_gpu.py"
    spec = importlib.util.spec_from_file_location("probe_on_gpu", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["probe_on_gpu"] = module
    spec.loader.exec_module(module)
    return module


def test_twelve_and_twenty_four(script: ModuleType) -> None:
    serve, train = list(script.serve_configurations()), list(script.train_configurations())
    assert (len(serve), len(train)) == (12, 24)
    assert len({str(one) for one in (*serve, *train)}) == 36
    recipes = [one.inputs for one in train]
    assert all(isinstance(recipe, Recipe) for recipe in recipes)
    assert Counter(recipe.method for recipe in recipes) == {"full": 8, "lora": 8, "qlora": 8}
    assert {recipe.attn_implementation for recipe in recipes} == {"eager", "sdpa"}
    assert {recipe.max_seq_length for recipe in recipes} == {512, 2048}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_without_a_gpu_everything_is_skipped(script: ModuleType, tmp_path: Path) -> None:
    said: list[str] = []
    records = tmp_path / "records.jsonl"
    assert script.main(["--only", "serve", "--records", str(records)], said.append) == 2
    assert said[-1] == "0 of 0 within 5%; 12 skipped" and not records.exists()
