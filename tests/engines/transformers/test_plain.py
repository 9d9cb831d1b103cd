"""Plain transformers: a published table of measured forwards, and hand arithmetic."""

from __future__ import annotations

import json

import pytest

from planner.contract.lengths import Lengths
from planner.contract.workload import Workload
from planner.engines.transformers.deployment import Deployment
from planner.engines.transformers.plan import TransformersPlan, plan_run
from planner.errors import UnsupportedArchitecture, UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB
from tests.cli.running import run

# vramcalc 0.1.2, validation table: torch 2.14.1, transformers 4.57.6, RTX A6000, one forward of the whole sequence,
# logits of every position, cache kept; max_memory_allocated in GB of 10^9, two decimals.
MEASURED = [
    ("meta-llama/Llama-3.2-1B", 2048, "sdpa", 3.08),
    ("meta-llama/Llama-3.2-1B", 4096, "sdpa", 3.68),
    ("meta-llama/Llama-3.2-1B", 2048, "eager", 3.95),
    ("meta-llama/Llama-3.2-3B", 2048, "sdpa", 7.21),
    ("meta-llama/Llama-3.1-8B", 2048, "sdpa", 16.88),
    ("Qwen/Qwen2.5-1.5B", 2048, "sdpa", 3.78),
]


def plan(name: str, *, input_len: int = 2048, output_len: int = 0, **inputs: object) -> TransformersPlan:
    asked = Workload(
        input_len=Lengths((("all", input_len),)), output_len=Lengths((("all", output_len),)) if output_len else None
    )
    deployment = Deployment(**{"gpu": find_gpu("A6000"), "dtype": "bfloat16"} | inputs)  # type: ignore[arg-type]
    return plan_run(load_model(name), deployment, asked)


@pytest.mark.parametrize(("name", "length", "attention", "measured"), MEASURED)
def test_measured_forwards_within_two_percent(name: str, length: int, attention: str, measured: float) -> None:
    found = plan(name, input_len=length, attn_implementation=attention)
    assert found.allocated_bytes / 1e9 == pytest.approx(measured, rel=0.02)


def component(found: TransformersPlan, name: str) -> int:
    return next(part.best for part in found.components if part.name == name)


def test_llama_by_hand() -> None:
    """1,235,814,400 weights; 16 layers x 2 x 8 x 64 x 2 B a token; logits 2,048 x 128,256 x 2 and two hidden rows."""
    found = plan("meta-llama/Llama-3.2-1B", input_len=2048)
    assert component(found, "weights") == 1_235_814_400 * 2
    assert component(found, "kv_cache") == 16 * 2 * 8 * 64 * 2 * 2048
    assert component(found, "forward_peak") == 2048 * 128_256 * 2 + 2 * (2048 * 2048 * 2)


def test_logits_of_the_last_position() -> None:
    """The MLP is then the fullest moment: 2,048 x (3 x 8,192 + 2 x 2,048) x 2, and the embedding's output."""
    found = plan("meta-llama/Llama-3.2-1B", input_len=2048, logits_to_keep="last")
    assert component(found, "forward_peak") == 2048 * (3 * 8192 + 2 * 2048) * 2 + 2048 * 2048 * 2


def test_eager_scores_by_type() -> None:
    """32 heads x 2,048 x 2,048: 10 B in bfloat16 (scores, their fp32 copy, its softmax), 6 B in float16."""
    long = {"input_len": 4096, "attn_implementation": "eager", "logits_to_keep": "last"}
    bfloat, half = (
        component(plan("meta-llama/Llama-3.2-1B", dtype=d, **long), "forward_peak") for d in ("bfloat16", "float16")
    )
    assert bfloat - half == 32 * 4096 * 4096 * 4


def test_caches() -> None:
    token = 16 * 2 * 8 * 64 * 2
    common = {"input_len": 1024, "output_len": 1024, "logits_to_keep": "last"}
    assert component(plan("meta-llama/Llama-3.2-1B", cache_implementation="none", **common), "kv_cache") == 0
    static = plan("meta-llama/Llama-3.2-1B", cache_implementation="static", **common)
    dynamic = plan("meta-llama/Llama-3.2-1B", cache_implementation="dynamic", **common)
    assert component(static, "kv_cache") == component(dynamic, "kv_cache") == 2048 * token
    # a static cache is whole during prefill, a dynamic one half of it
    assert static.allocated_bytes - dynamic.allocated_bytes == 1024 * token


def test_largest_that_fit_do_fit() -> None:
    found = plan("meta-llama/Llama-3.1-8B", input_len=2048)
    assert plan("meta-llama/Llama-3.1-8B", input_len=found.longest_input).verdict in ("fits", "tight")
    assert plan("meta-llama/Llama-3.1-8B", input_len=found.longest_input + 1).verdict == "does_not_fit"
    assert plan("meta-llama/Llama-3.1-8B", batch_size=found.largest_batch + 1).verdict == "does_not_fit"


def test_refusals() -> None:
    with pytest.raises(UnsupportedArchitecture):
        plan("deepseek-ai/DeepSeek-V2-Lite")
    for wrong in (
        {"batch_size": 0},
        {"attn_implementation": "paged"},
        {"cache_implementation": "banana"},
        {"logits_to_keep": "some"},
        {"dtype": "int3"},
    ):
        with pytest.raises(UsageError):
            plan("meta-llama/Llama-3.2-1B", **wrong)


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--gpu", "A6000", "--engine", "transformers", "--input-len", "2048", "--format", "json")
    found = json.loads(run(capsys, monkeypatch, "serve", "meta-llama/Llama-3.2-1B", *options).out)
    assert found["peak"]["allocated_bytes"] / 1e9 == pytest.approx(3.08, rel=0.02)
    small = run(capsys, monkeypatch, "serve", "meta-llama/Llama-3.1-8B", "--gpu-memory", "8GiB", *options[2:])
    assert small.status == 1
    assert json.loads(small.out)["shortfall_bytes"] > 8 * GIB
    assert run(capsys, monkeypatch, "serve", "meta-llama/Llama-3.2-1B", "--gpu", "A6000", "--engine", "tgi").status == 2
