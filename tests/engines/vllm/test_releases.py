"""Rules by release, and which engine and runner a release starts; figures by hand or from printed logs."""

from __future__ import annotations

import pytest

from planner import Deployment, ServingPlan, find_gpu, load_model, plan_serving
from planner.engines.vllm.budget.runner import uses_v2_runner
from planner.units import GIB

LLAMA, QWEN_MOE, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-8B"


def plan(version: str, name: str = LLAMA, gpu: str = "H100", **more: object) -> ServingPlan:
    options = {"gpu": find_gpu(gpu), "max_model_len": 8192, "engine_version": version} | more
    return plan_serving(load_model(name), Deployment(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "version", "runner"),
    [
        (LLAMA, "0.23.0", "v1"),
        ("google/gemma-2-9b-it", "0.24.0", "v1"),
        ("google/gemma-2-9b-it", "0.25.0", "v2"),  # every dense decoder
        (QWEN_MOE, "0.28.0", "v1"),
        (QWEN_MOE, "0.29.0", "v2"),  # everything
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.29.0", "v2"),
        ("deepseek-ai/DeepSeek-V4-Flash", "0.27.1", "v1"),
        ("deepseek-ai/DeepSeek-V4-Flash", "0.28.0", "v2"),
    ],
)
def test_the_v2_runner(name: str, version: str, runner: str) -> None:
    found = plan(version, name, "H200", tensor_parallel_size=4)
    assert uses_v2_runner(found.model, found.resolved) is (runner == "v2")


@pytest.mark.parametrize("version", ["0.24.0", "0.26.0", "0.27.1", "0.30.0", "0.33.0"])
def test_a_forced_runner_is_taken(version: str) -> None:
    peaks = {}
    for runner in ("v1", "v2"):
        found = plan(version, model_runner=runner)
        assert uses_v2_runner(found.model, found.resolved) is (runner == "v2")
        peak = found.budget.component("activation_peak")
        assert peak is not None
        peaks[runner] = peak.best
    assert peaks["v1"] > peaks["v2"] or version == "0.33.0"


@pytest.mark.parametrize("name", [LLAMA, QWEN_MOE])
def test_consumed_accounting_from_0_27(name: str) -> None:
    """0.27.1 prints "Actual usage is .. for consumed memory": the same terms and bytes as 0.28.0."""
    known = {version: plan(version, name).budget for version in ("0.26.0", "0.27.1", "0.28.0")}
    terms = {version: {part.name: part.best for part in budget.inside} for version, budget in known.items()}
    assert terms["0.27.1"] == terms["0.28.0"]
    assert "persistent_buffers" not in terms["0.26.0"]


def test_what_stays_is_consumed_and_not_peak() -> None:
    """Expert workspaces: 8,192 x 8 x (2,048 + 2,048) x 2 B stay after the profile run (consumed from 0.27)."""
    stays = 8192 * 8 * (2048 + 2048) * 2
    before, after = (plan(version, QWEN_MOE, model_runner="v1") for version in ("0.26.0", "0.27.1"))
    peaks = [found.budget.component("activation_peak") for found in (before, after)]
    kept = after.budget.component("persistent_buffers")
    assert peaks[0] is not None and peaks[1] is not None and kept is not None
    assert peaks[0].best - peaks[1].best == stays + (32 << 20)
    assert kept.best >= stays


@pytest.mark.parametrize(("version", "inside"), [("0.28.0", False), ("0.29.0", True)])
def test_the_v2_runner_estimates_graphs_from_0_29(version: str, inside: bool) -> None:
    assert ("cuda_graphs" in {part.name for part in plan(version).budget.inside}) is inside
    assert plan(version).pool.reserves_null_block is inside


@pytest.mark.parametrize(
    ("gpu", "options", "reason"),
    [
        ("T4", {"dtype": "float16"}, "compute capability 7.5"),
        ("V100-SXM2-32GB", {"dtype": "float16"}, "compute capability 7.0"),
        ("A100-80GB", {"kv_cache_dtype": "fp8"}, "FlashAttention 3"),
        ("H100", {"dtype": "float32"}, "float32"),
    ],
)
def test_0_8_falls_back_to_v0(gpu: str, options: dict[str, object], reason: str) -> None:
    found = plan("0.8.5", gpu=gpu, **options)
    assert found.resolved.profile.runner == "v0"
    assert any(reason in note for note in found.notes)
    # not chunked up to 32,768: a batch holds one whole request
    assert found.resolved.max_num_batched_tokens == 8192


@pytest.mark.parametrize(("gpu", "options"), [("H100", {}), ("H100", {"kv_cache_dtype": "fp8"}), ("A100-80GB", {})])
def test_0_8_starts_v1_where_it_can(gpu: str, options: dict[str, object]) -> None:
    assert plan("0.8.5", gpu=gpu, **options).resolved.profile.runner == "v1"


def test_a_t4_with_0_8_5() -> None:
    """V0: 4,096 tokens, no context inside, 5.91 GiB of cache in place of V1's 5.79 (within the driver's growth)."""
    found = plan("0.8.5", QWEN, "T4", dtype="float16", quantization="awq", max_model_len=4096)
    assert found.resolved.max_num_batched_tokens == 4096
    assert abs(found.kv_cache_bytes / GIB - 5.91) <= 0.06


@pytest.mark.parametrize(
    ("name", "vocabulary", "rows"), [(QWEN, 151_936, 256), ("meta-llama/Llama-3.1-8B-Instruct", 128_256, 128)]
)
def test_the_official_image_of_0_10_samples_without_sorting(name: str, vocabulary: int, rows: int) -> None:
    """38 B a row and word where FlashInfer is not installed, 14 where it is: the band holds both."""
    options = {"gpu": "A100-80GB", "max_num_seqs": rows}
    unsaid, stated = plan("0.10.1", name, **options), plan("0.10.1", name, sampler="flashinfer", **options)
    peaks = [found.budget.component("activation_peak") for found in (unsaid, stated)]
    assert peaks[0] is not None and peaks[1] is not None
    assert peaks[0].best >= 38 * rows * vocabulary
    assert peaks[0].low <= 14 * rows * vocabulary + 2**26 and peaks[0].low <= peaks[1].best
    newer = plan("0.12.0", name, **options).budget.component("activation_peak")
    assert newer is not None and newer.low > 0.9 * 38 * rows * vocabulary


def test_a_printed_start_of_0_11_0_captured_67_sizes() -> None:
    from planner.engines.vllm.budget.graphs import capture_sizes

    sizes = [len(capture_sizes(load_model(LLAMA), plan(version).resolved)) for version in ("0.11.0", "0.11.2")]
    assert sizes == [67, 51]


@pytest.mark.parametrize(
    ("name", "options", "release"),
    [
        (LLAMA, {}, "0.33.0"),
        ("deepseek-ai/DeepSeek-V4-Flash", {"gpu": "B200"}, "0.33.0"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", {}, "0.10.2"),  # the last that has mllama
        (LLAMA, {"quantization": "Q4_K_M"}, "0.22.1"),  # the last that reads GGUF
    ],
)
def test_the_release_where_none_is_named(name: str, options: dict[str, object], release: str) -> None:
    gpu = find_gpu(str(options.get("gpu", "H100")))
    asked = {key: value for key, value in options.items() if key != "gpu"}
    found = plan_serving(load_model(name), Deployment(gpu=gpu, max_model_len=4096, tensor_parallel_size=1, **asked))  # type: ignore[arg-type]
    assert found.engine_version == release
    assert any("is planned: the newest that" in note for note in found.notes) is (release != "0.33.0")


@pytest.mark.parametrize(
    ("version", "said"), [("0.33.0", "no measured start of 0.33"), ("0.22.1", "of 0.22"), ("0.19.0", "")]
)
def test_the_verdict_line_says_when_few_starts_cover_a_release(version: str, said: str) -> None:
    from planner.engines.vllm.outcome.section import section

    line = section(plan(version)).headline  # type: ignore[arg-type]
    assert (said in line) if said else ("measured start" not in line)
