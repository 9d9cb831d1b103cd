"""The roofline: its arithmetic by hand, and its band against published measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.engines.vllm.plan import VllmPlan as ServingPlan
from planner.hardware.links import link_of
from planner.serving.step_cost import distinct_experts, step_costs
from planner.serving.throughput import decode_step, prefill, requests_per_second

ROWS = json.loads((Path(__file__).parent / "published_throughput.json").read_text("utf-8"))["rows"]


def plan_of(row: dict[str, object]) -> ServingPlan:
    deployment = Deployment(
        gpu=find_gpu(str(row["gpu"])), max_model_len=4096, quantization=row.get("quantization"),  # type: ignore[arg-type]
        tensor_parallel_size=row.get("tensor_parallel_size", 1),  # type: ignore[arg-type]
    )  # fmt: skip
    return plan_serving(load_model(str(row["model"])), deployment)


def inside(row: dict[str, object]) -> bool:
    plan = plan_of(row)
    sequences, read, written = (int(str(row[name])) for name in ("sequences", "input", "output"))
    if "tpot_ms" in row:
        step = decode_step(plan, sequences=sequences, context=read + written // 2)
        return step.high <= float(str(row["tpot_ms"])) / 1000 <= step.low
    rate = requests_per_second(plan, sequences=sequences, input_tokens=read, output_tokens=written)
    return rate.low <= float(str(row["output_tokens_per_second"])) / written <= rate.high


def configuration(row: dict[str, object]) -> tuple[object, ...]:
    return row["model"], row["gpu"], row.get("quantization"), row.get("tensor_parallel_size", 1)


def test_the_band_holds_for_published_figures() -> None:
    """Judged by configurations that no constant was read from: all their rows must lie inside the band."""
    read_from = {configuration(row) for row in ROWS if row.get("calibrates")}
    judged = {configuration(row) for row in ROWS} - read_from
    missed = {configuration(row) for row in ROWS if not inside(row)}
    assert len(judged) >= 9
    assert len(judged - missed) >= 8
    # 740 tokens a second where the fast side is 729
    assert missed == {("Qwen/Qwen3-30B-A3B", "h100-sxm-80gb", None, 1)}


@pytest.mark.parametrize(
    ("experts", "each", "tokens", "expected"),
    [
        (128, 8, 1, 8.0),
        (8, 2, 2, 3.5),  # 8 x (1 - (6/8)^2) = 8 x 7/16
        (4, 4, 1, 4.0),
        (128, 8, 10, 60.87),  # 128 x (1 - (15/16)^10): (15/16)^10 = 0.52449
    ],
)
def test_distinct_experts(experts: int, each: int, tokens: int, expected: float) -> None:
    assert distinct_experts(experts, each, tokens) == pytest.approx(expected, abs=0.01)


def test_a_decode_step_reads_all_weights_but_the_embedding() -> None:
    """Llama-3.1-8B: 8,030,261,248 weights less 128,256 x 4,096 of the embedding, 2 B each; cache 131,072 B a token."""
    plan = plan_of({"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100-sxm-80gb"})
    (cost,) = step_costs(plan, sequences=4, context=1000)
    assert cost.weight_bytes == 2 * (8_030_261_248 - 128_256 * 4_096) == 15_009_849_344
    assert cost.cache_bytes == 4 * 1000 * 131_072
    # every matrix but the norms, twice a token: 32 x 4,096 x (4,096 x 2 + 1,024 x 2 + 14,336 x 3) + the head
    matrices = 32 * 4096 * (4096 * 2 + 1024 * 2 + 14336 * 3) + 128_256 * 4096
    assert cost.operations == 4 * 2 * matrices


def test_a_tied_embedding_is_read_as_the_head() -> None:
    """Qwen3-0.6B is tied: 596,049,920 weights, all read."""
    plan = plan_of({"model": "Qwen/Qwen3-0.6B", "gpu": "h100-sxm-80gb"})
    (cost,) = step_costs(plan, sequences=1, context=1)
    assert cost.weight_bytes == 2 * 596_049_920


def test_sides_are_in_order_and_more_work_takes_longer() -> None:
    plan = plan_of({"model": "Qwen/Qwen3-30B-A3B", "gpu": "h100-sxm-80gb", "tensor_parallel_size": 2})
    before = 0.0
    for sequences in (1, 2, 8, 64, 512):
        step = decode_step(plan, sequences=sequences, context=2000)
        assert step.high < step.best < step.low
        assert step.best > before
        before = step.best
    assert prefill(plan, tokens=8000).best > prefill(plan, tokens=4000).best


@pytest.mark.parametrize(
    ("name", "expected", "kind"),
    [
        ("h100-sxm-80gb", 450 * 10**9, "nvlink"),  # 900 GB/s is both directions
        ("rtx-4090", 16 * 1_969_000_000, "pcie"),
        ("b200", 900 * 10**9, "nvlink"),
    ],
)
def test_links(name: str, expected: int, kind: str) -> None:
    link = link_of(find_gpu(name))
    assert link is not None and (link.bytes_per_second, link.kind) == (expected, kind)
