"""TensorRT-LLM: the fraction of what is left, blocks by release, the YAML, and the measured starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from planner.contract.component import total
from planner.contract.engine import find_engine
from planner.contract.parser import parse
from planner.contract.workload import Workload
from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.engine import TENSORRT_LLM
from planner.engines.tensorrt_llm.fraction import fraction_bounds
from planner.engines.tensorrt_llm.log import read_log
from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan, plan_serving
from planner.engines.tensorrt_llm.pool import block_pool, left_after_dry_run
from planner.engines.tensorrt_llm.tables.releases import parse_release
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB
from planner.validation.cases import bundled_cases
from planner.validation.engines.tensorrt_llm import score

LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")
OLD, NEW = parse_release("0.15"), parse_release("1.2.0rc3")


def plan(workload: Workload = Workload(), **inputs: object) -> TensorrtLlmPlan:  # noqa: B008
    stated: dict[str, object] = {"gpu": find_gpu("H100")} | inputs
    return plan_serving(LLAMA, Deployment(**stated), workload)  # type: ignore[arg-type]


def test_blocks_of_what_is_left_by_release() -> None:
    # 0.9 x 70.48 GiB of 262,144 B tokens in blocks of 64: 4059.6, printed 4060
    left = round(70.48 * GIB)
    up = block_pool(left, fraction=0.9, bytes_per_token=262_144, tokens_per_block=64, release=OLD)
    assert (up.blocks, up.tokens) == (4060, 259_840)
    down = block_pool(left, fraction=0.9, bytes_per_token=262_144, tokens_per_block=64, release=NEW)
    assert down.blocks == 4059 and down.bytes <= down.budget_bytes


def test_the_dry_runs_cache_is_given_back_from_0_19_on() -> None:
    assert left_after_dry_run(100, 60, 5, parse_release("0.18")) == 40
    assert left_after_dry_run(100, 60, 5, parse_release("0.19")) == 45


def test_every_measured_start() -> None:
    rows, left = score(bundled_cases("tensorrt_llm"))
    pools = [row for row in rows if row.component == "pool"]
    assert len(pools) == 6 and all(abs(row.error) <= 0.005 for row in pools)
    blocks = [row for row in rows if row.component == "blocks"]
    assert len(blocks) == 3 and all(row.planned == row.measured for row in blocks)
    geometry = [row for row in rows if row.component.startswith("bytes")]
    assert len(geometry) == 7 and all(abs(row.difference) <= max(0.0005 * row.measured, 0.005) for row in geometry)
    assert {one.case.id for one in left} == {"tr-008", "tr-015"}


def test_weights_never_count_against_the_fraction_and_length_does_not_cap_the_pool() -> None:
    found = plan()
    stage = found.stages[0]
    assert found.pool.budget_bytes == int(stage.left["best"] * 0.9)
    assert plan(max_seq_len=2048).pool.blocks == found.pool.blocks
    assert plan(kv_cache_config='{"max_tokens": 5000}').pool.tokens == 5024  # whole blocks of 32
    capped = plan(kv_cache_config='{"max_gpu_total_bytes": 1073741824}')
    assert capped.pool.budget_bytes == GIB and capped.pool.capped_by == "max_gpu_total_bytes"
    older = plan(kv_cache_config='{"max_gpu_total_bytes": 1073741824}', engine_version="0.20")
    assert older.pool.budget_bytes > GIB


def test_the_yaml_beats_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "extra.yaml"
    file.write_text(
        "kv_cache_config:\n  free_gpu_memory_fraction: 0.5\nmax_batch_size: 64\nenable_attention_dp: true\n"
        "moe_config:\n  backend: CUTLASS\n"
    )
    words = ["--gpu", "H100", "--max_batch_size", "8", "--tp_size", "2", "--extra_llm_api_options", str(file)]
    parsed = parse([Deployment], words, other=TENSORRT_LLM.takes)
    deployment = TENSORRT_LLM.deployment(parsed)
    assert (deployment.max_batch_size, deployment.enable_attention_dp, deployment.fraction) == (64, True, 0.5)
    found = plan_serving(LLAMA, deployment)
    assert any("--moe-config" in note for note in found.notes)
    assert any("max_batch_size 64 instead of 8" in note for note in found.notes)
    printed = list(TENSORRT_LLM.command(found))
    again = parse([Deployment], ["--gpu", "H100", *printed[2:]], other=TENSORRT_LLM.takes)
    second = plan_serving(LLAMA, TENSORRT_LLM.deployment(again))
    assert (second.cache, second.verdict, second.devices) == (found.cache, found.verdict, found.devices)
    assert list(TENSORRT_LLM.command(second)) == printed


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("kv_cache_config:\n  max_tokns: 5\n", "max_tokns"),
        ("kv_cache_config:\n  free_gpu_memory_fraction: 1.5\n", "free_gpu_memory_fraction"),
        ("kv_cache_config: [1]\n", "JSON object"),
        ("max_batch_size: many\n", "whole number"),
        ("no_such_argument: 1\n", "no_such_argument"),
        ("a: &a [1]\nb: *a\n", "aliases"),
    ],
)
def test_a_wrong_yaml_is_one_line(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "extra.yaml"
    file.write_text(text)
    parsed = parse([Deployment], ["--gpu", "H100", "--extra_llm_api_options", str(file)], other=TENSORRT_LLM.takes)
    with pytest.raises(UsageError, match=named.replace("_", "[_-]")):
        TENSORRT_LLM.deployment(parsed)


def test_bounds_of_the_fraction_are_turning_points() -> None:
    workload = Workload(concurrency=2)
    least, greatest = fraction_bounds(plan(workload))
    assert least is not None and greatest is not None
    assert plan(workload, kv_cache_free_gpu_memory_fraction=least).accepted
    assert not plan(workload, kv_cache_free_gpu_memory_fraction=round(least - 0.01, 2)).accepted
    assert plan(workload, kv_cache_free_gpu_memory_fraction=greatest).accepted


def test_states_are_not_guessed() -> None:
    found = plan_serving(load_model("Qwen/Qwen3.6-27B"), Deployment(gpu=find_gpu("H100")))
    assert found.verdict == "unknown" and "recurrent states" in found.unknown[0]


def test_the_engine_back_end_counts_its_decoder_first() -> None:
    engines, torch = plan(engine_version="0.20"), plan(engine_version="1.2")
    names = {part.name for part in engines.stages[0].before}
    assert {"decoder", "runtime_buffers"} <= names
    assert not {"decoder"} & {part.name for part in torch.stages[0].before}
    assert plan(engine_version="0.20", max_beam_width=4).pool.tokens < engines.pool.tokens


@given(memory=st.integers(20, 200), fraction=st.integers(5, 99), tensor=st.sampled_from([1, 2, 4]))
@hypothesis_settings(max_examples=30, deadline=None)
def test_parts_add_up_and_a_larger_card_never_hurts(memory: int, fraction: int, tensor: int) -> None:
    deployment = Deployment(
        gpu_memory_bytes=memory * GIB, tp_size=tensor, kv_cache_free_gpu_memory_fraction=fraction / 100
    )
    found = plan_serving(LLAMA, deployment)
    for device in found.devices:
        held = total(device.components, "best") + device.cache_bytes
        assert abs(device.total_bytes - held - device.free_bytes) <= 1
    larger = plan_serving(LLAMA, replace(deployment, gpu_memory_bytes=(memory + 8) * GIB))
    assert larger.pool.tokens >= found.pool.tokens


def test_a_log() -> None:
    found = read_log(
        [
            "[TensorRT-LLM] TensorRT-LLM version: 1.2.0",
            "[TRT-LLM] Peak memory during memory usage profiling (torch + non-torch): 113.65 GiB, available KV cache"
            " memory when calculating max tokens: 5.95 GiB, fraction is set 0.9, kv size is 73728. device total memory"
            " 119.70 GiB, tmp kv_mem 0.56 GiB",
            "[TensorRT-LLM][INFO] Allocated 5.95 GiB for max tokens in paged KV cache (86711).",
            "RuntimeError: Executor creation failed due to insufficient GPU memory.",
        ]
    )
    assert found.version == "1.2.0" and found.error is not None
    assert found.measured == {
        "peak_profiling_gib": 113.65,
        "kv_budget_gib": 5.95,
        "kv_bytes_per_token": 73728,
        "gpu_memory_gib": 119.7,
        "temporary_kv_gib": 0.56,
        "kv_size_gib": 5.95,
        "kv_tokens": 86711,
    }


def test_lmdeploy_is_refused_by_name() -> None:
    assert find_engine("TensorRT-LLM") is TENSORRT_LLM
    with pytest.raises(UsageError, match=r"LMDeploy .* is recognised and not planned"):
        find_engine("lmdeploy")
