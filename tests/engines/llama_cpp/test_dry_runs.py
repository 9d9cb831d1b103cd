"""A sample of what llama.cpp v0.5.0's own planner said, and of loads that people printed.

The whole is `tools/refresh_llama_cpp.py`, whose dated page is docs/accuracy_llama_cpp.md.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from importlib.resources import files

import pytest

from planner.engines.llama_cpp import compute
from planner.engines.llama_cpp.buffers import buffers_of
from planner.engines.llama_cpp.compute import Settings
from planner.engines.llama_cpp.compute import _reserved as reserved  # the graph without the memory of results
from planner.engines.llama_cpp.resolve import value_width
from planner.model.load import load_model
from planner.validation.engines.llama_cpp import Figure, dry_run_figures, public_figures, public_run

SAMPLED = (
    "meta-llama__Llama-3.2-1B-Instruct",
    "Qwen__Qwen3-30B-A3B",
    "google__gemma-3-4b-it",
    "openai__gpt-oss-20b",
    "deepseek-ai__DeepSeek-V3",
    "Qwen__Qwen3.5-4B",
)


def _rows() -> list[dict[str, object]]:
    text = files("planner.validation").joinpath("cases/llama_cpp_dry_runs.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("config", SAMPLED)
def test_the_engines_own_planner(config: str) -> None:
    rows = (row for row in _rows() if row["config"] == config)
    picked = ({**row, "runs": row["runs"][::7]} for row in rows)  # type: ignore[index]
    figures = list(dry_run_figures(picked))  # type: ignore[arg-type]
    assert figures
    assert {figure.kind for figure in figures} >= {"kv", "compute", "host"}
    wrong = [(figure.case, figure.kind, figure.measured, figure.planned) for figure in figures if figure.error]
    assert not wrong


def test_public_caches_are_exact() -> None:
    found = [figure for figure in public_figures() if isinstance(figure, Figure) and figure.kind == "kv"]
    assert len(found) > 60
    assert not [figure for figure in found if abs(figure.error) > 0.0005]


# MLA on a card and on a CPU with f16 and q8_0 caches, experts offloaded or not, without MLA, dense, several cards
FORK_EXACT = ("001", "003", "004", "005", "006", "007", "010", "013", "026", "033", "035", "036", "041", "069", "070")


def test_logs_of_the_fork() -> None:
    cases = {f"gguf-{number}" for number in FORK_EXACT}
    found = [one for one in public_figures() if isinstance(one, Figure) and one.case in cases and one.kind == "compute"]
    assert {figure.case for figure in found} == cases
    wrong = [(one.case, one.device, one.measured, one.planned) for one in found if abs(one.error) > 0.005]
    assert not wrong


def test_representative_layers_give_what_all_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of every layer reserves the same bytes: a hybrid, a window every sixth layer, dense layers in front."""
    for name, mix in (
        ("Qwen/Qwen3.5-4B", "Q4_K_M"),
        ("google/gemma-3-4b-it", "Q4_0"),
        ("zai-org/GLM-4.5-Air", "Q4_K_M"),
    ):
        model = load_model(name)
        row = {
            "id": "",
            "engine": "llama.cpp",
            "engine_version": "2026-07",
            "gguf": {"quant": mix},
            "measured": {},
            "deployment": {"n_ctx": 16384, "n_parallel": 4},
        }
        run = public_run(model, row)
        settings = Settings(placement=run.placement, value_width=value_width(model, run))
        short = reserved(model, run.batch(), settings, run.tensors, run.style)
        monkeypatch.setattr(compute, "representatives", lambda kinds: list(range(len(kinds))))
        assert reserved(model, run.batch(), settings, run.tensors, run.style) == short
        monkeypatch.undo()


def test_more_room_is_never_needed_for_fewer_tokens() -> None:
    model = load_model("Qwen/Qwen3-8B")
    row = {
        "id": "",
        "engine": "llama.cpp",
        "engine_version": "2026-07",
        "gguf": {"quant": "Q4_K_M"},
        "measured": {},
        "deployment": {"n_ctx": 32768},
    }
    run = public_run(model, row)
    sizes = [
        buffers_of(model, replace(run, geometry=replace(run.geometry, tokens=tokens, outputs=tokens))).compute[0]
        for tokens in (64, 128, 256, 512, 1024)
    ]
    assert all(small < large for small, large in itertools.pairwise(sizes))
