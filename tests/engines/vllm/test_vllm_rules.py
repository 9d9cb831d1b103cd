"""Rules of vLLM by version, with the figures that its sources or logs give."""

from __future__ import annotations

import pytest

from planner.engines.vllm.budget.graphs import graph_count
from planner.engines.vllm.budget.runner import sampler_path, uses_v2_runner
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import plan_serving
from planner.engines.vllm.plan import VllmPlan as ServingPlan
from planner.engines.vllm.resolve import Resolved, resolve
from planner.engines.vllm.stages import cache_format_of, pool_of
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def resolved(name: str, version: str, gpu: str = "H100", **inputs: object) -> Resolved:
    values = {"gpu": find_gpu(gpu), "engine_version": version} | inputs
    return resolve(load_model(name), Deployment(**values))  # type: ignore[arg-type]


def plan(name: str, version: str, gpu: str = "H100", **inputs: object) -> ServingPlan:
    values = {"gpu": find_gpu(gpu), "engine_version": version} | inputs
    return plan_serving(load_model(name), Deployment(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        # config/vllm.py DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES and _is_default_v2_model_runner_model
        ("Qwen/Qwen3-8B", "0.22.1"),
        (LLAMA, "0.24.0"),
        ("google/gemma-2-9b-it", "0.26.0"),  # dense, in no list
        ("Qwen/Qwen3-30B-A3B", "0.30.0"),  # mixture of experts, in no list
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.30.0"),  # recurrent layers
    ],
)
def test_v2_runner_by_architecture(name: str, first: str) -> None:
    versions = ["0.19.0", "0.20.0", "0.22.1", "0.24.0", "0.26.0", "0.28.0", "0.30.0", "0.33.0"]
    uses = [uses_v2_runner(load_model(name), resolved(name, version)) for version in versions]
    assert uses == [version >= first for version in versions]


def test_v2_runner_of_0_22_is_not_for_quantised_checkpoints() -> None:
    name = "Qwen/Qwen3-8B"
    assert not uses_v2_runner(load_model(name), resolved(name, "0.22.1", quantization="fp8"))
    assert uses_v2_runner(load_model(name), resolved(name, "0.24.0", quantization="fp8"))


@pytest.mark.parametrize(
    ("version", "gpu", "path"),
    [
        ("0.16.0", "H100", "sort"), ("0.17.1", "H100", "triton"), ("0.20.0", "H100", "triton"),
        ("0.22.1", "H100", "flashinfer"), ("0.22.1", "MI300X", "triton"), ("0.24.0", "H100", "copied_logits"),
        ("0.28.0", "H100", "logits"), ("0.30.0", "H100", "logits"), ("0.33.0", "H100", "second_pass"),
        ("0.33.0", "MI300X", "second_pass"),
    ],
)  # fmt: skip
def test_sampler_of_the_profile_run(version: str, gpu: str, path: str) -> None:
    assert sampler_path(load_model(LLAMA), resolved(LLAMA, version, gpu)) == path


def test_graph_estimate_of_the_v2_runner_is_nothing_before_0_30() -> None:
    """GPUModelRunner.profile_cudagraph_memory returns 0 in 0.24 and 0.28 (v1/worker/gpu/model_runner.py)."""
    inside = {v: {part.name for part in plan(LLAMA, v).budget.inside} for v in ("0.20.0", "0.24.0", "0.28.0", "0.30.0")}
    assert {version for version, names in inside.items() if "cuda_graphs" in names} == {"0.20.0", "0.30.0"}


def test_penalty_counters_count_from_0_28() -> None:
    """1,024 x 128,256 x (4 + 1/8) B: outside every term of 0.24, inside what 0.28 calls consumed."""
    size = 1024 * 128_256 * 4 + 1024 * 128_256 // 8
    early, late = plan(LLAMA, "0.24.0").budget, plan(LLAMA, "0.28.0").budget
    outside = next(part for part in early.outside if part.name == "persistent_buffers")
    assert outside.best == size
    inside = next(part for part in late.inside if part.name == "persistent_buffers")
    assert inside.best > size


@pytest.mark.parametrize(
    ("name", "version", "asked", "mode"),
    [
        # models/config.py MambaModelConfig: turned off to 0.10, by block where kernels can, aligned from 0.28
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "0.10.2", True, "none"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "0.12.0", True, "all"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "0.24.0", True, "all"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "0.28.0", True, "align"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.12.0", True, "none"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.17.1", True, "align"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.24.0", None, "none"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.28.0", None, "align"),
    ],
)
def test_recurrent_states_and_prefix_caching(name: str, version: str, asked: bool | None, mode: str) -> None:
    found = resolved(name, version, enable_prefix_caching=asked)
    assert found.state_mode == mode
    assert found.enable_prefix_caching == (mode != "none")


@pytest.mark.parametrize(
    ("version", "gpu", "block"),
    [
        # platforms/cuda.py check_and_update_config to 0.17; get_preferred_block_size from 0.19
        ("0.10.2", "H100", 64), ("0.12.0", "H100", 64), ("0.17.1", "H100", 64), ("0.19.0", "H100", 16),
        ("0.12.0", "B200", 128), ("0.17.1", "B200", 64), ("0.19.0", "B200", 32), ("0.17.1", "A100-80GB", 16),
    ],
)  # fmt: skip
def test_block_of_latent_attention(version: str, gpu: str, block: int) -> None:
    assert resolved("deepseek-ai/DeepSeek-V2-Lite", version, gpu, max_model_len=8192).block_size == block


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "sequences"),
    [
        # engine/arg_utils.py get_batch_defaults
        ("0.8.5", "A100-80GB", 8192, 1024), ("0.9.2", "A100-80GB", 2048, 256), ("0.24.0", "B200", 8192, 1024),
        ("0.28.0", "B200", 16384, 1024), ("0.30.0", "GB10", 8192, 1024), ("0.33.0", "GB10", 2048, 256),
    ],
)  # fmt: skip
def test_batch_defaults(version: str, gpu: str, tokens: int, sequences: int) -> None:
    found = resolved(LLAMA, version, gpu)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, sequences)


def test_windows_keep_two_batches_from_0_26() -> None:
    """gemma-2: W 4,096, T 8,192: cdiv(4,095 + 8,192, 16) + 1 = 769 blocks a window group, then cdiv(20,479, 16) + 1."""
    name = "google/gemma-2-9b-it"
    for version, window in (("0.24.0", 769), ("0.28.0", 1281)):
        found = resolved(name, version, max_model_len=65_536)
        model = load_model(name)
        pool, _ = pool_of(model, found, cache_format_of(model, "auto", "bfloat16"), slice(0, 42))
        assert pool.blocks_for(65_536) == 65_536 // 16 + window


def test_falcon_h1_start_of_0_12() -> None:
    """Printed: 5.28 GiB, blocks of 2,080 tokens, 83,968 tokens = 41 x 2,048 (the smaller block is the length)."""
    found = plan("tiiuae/Falcon-H1-3B-Instruct", "0.12.0", "4090", max_model_len=2048)
    assert found.pool.bytes_per_block == 2080 * 1024 * 32
    blocks = found.pool.num_blocks(round(5.28 * GIB))
    assert blocks in (82, 83)
    assert found.pool.tokens(83) == 83_968
    assert found.pool.max_concurrency(83) == 41.5


def test_bamba_on_v0_keeps_states_outside_the_pool() -> None:
    """A start of 0.6.5: 34.78 GiB printed as 189,945 blocks of 3 attention layers x 16 x 2 x 8 x 128 x 2 B."""
    found = plan("ibm-ai-platform/Bamba-9B-v1", "0.6.5", "A100-80GB", max_model_len=1024)
    assert found.pool.bytes_per_block == 3 * 16 * 2 * 8 * 128 * 2
    assert found.pool.num_blocks(round(34.78 * GIB)) == pytest.approx(189_945, rel=2e-4)
    assert found.resolved.profile.runner == "v0"


def test_recurrent_models_stay_on_v0_until_0_10() -> None:
    name = "ibm-ai-platform/Bamba-9B-v1"
    runners = {v: resolved(name, v, "A100-80GB").profile.runner for v in ("0.8.5", "0.9.2", "0.10.2")}
    assert runners == {"0.8.5": "v0", "0.9.2": "v0", "0.10.2": "v1"}


def test_gemma_4_allocates_projections_that_its_file_lacks() -> None:
    """Printed by 0.21 with 2,048 batched tokens and no towers: 8.89 GiB; by 0.23 for 31B: 58.99 GiB."""
    small = plan("google/gemma-4-E2B-it", "0.21.0", "L4", language_model_only=True, max_model_len=8192)
    large = plan("google/gemma-4-31B-it", "0.23.0", "H200", max_model_len=8192)
    for found, printed in ((small, 8.89), (large, 58.99)):
        weights = found.budget.component("weights")
        assert weights is not None
        assert weights.best / GIB == pytest.approx(printed, rel=0.003)


def test_absorbed_products_of_0_7() -> None:
    """DeepSeek-V2-Lite on 8 GPUs, 0.7.1: 3.97 GiB printed; a layer 2 x (2,048 x 576 + 512 x 2,048) x 2 B more."""
    name = "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct"
    early, late = (
        plan(name, version, "A100-40GB", tensor_parallel_size=8, dtype="float16", max_model_len=8192)
        for version in ("0.7.1", "0.8.5")
    )
    sizes = [found.budget.component("weights") for found in (early, late)]
    assert sizes[0] is not None and sizes[1] is not None
    assert sizes[0].best - sizes[1].best == 27 * 2 * (2048 * 576 + 512 * 2048) * 2
    assert sizes[0].best / GIB == pytest.approx(3.97, rel=0.005)


def test_gate_of_qwen_lives_through_its_mlp_on_v0() -> None:
    """0.7.2, 32,768 tokens in one batch: T x (3I + 4H) x 2 = 2.02 GiB, as a T4 start printed; llama.py drops one H."""
    length = {"max_model_len": 32_768, "max_num_batched_tokens": 32_768}
    found = plan("Qwen/Qwen2.5-1.5B", "0.7.2", "T4", dtype="float16", **length)
    peak = found.budget.component("activation_peak")
    assert peak is not None
    assert peak.best / GIB == pytest.approx(2.02, abs=0.02)


def test_capacity_check_counts_layers_then_the_whole_model() -> None:
    """0.15 with two stages demands the cache of all 48 layers: 24.0 GiB for 262,144 tokens, as a refusal printed."""
    found = plan(
        "Qwen/Qwen3-30B-A3B-FP8", "0.15.2", "4090", pipeline_parallel_size=2, max_model_len=262_144,
    )  # fmt: skip
    assert found.needed_bytes == 24 * GIB
    later = plan(
        "Qwen/Qwen3-30B-A3B-FP8", "0.19.0", "4090", pipeline_parallel_size=2, max_model_len=262_144,
    )  # fmt: skip
    assert later.needed_bytes == 12 * GIB


def test_lora_doubles_the_graphs() -> None:
    """51 + 35 sizes at max_num_seqs 256; twice with cudagraph_specialize_lora (config/compilation.py 0.12.0)."""
    model = load_model(LLAMA)
    counts = [
        graph_count(model, resolved(LLAMA, version, max_num_seqs=256, enable_lora=lora))
        for version, lora in (("0.19.0", False), ("0.19.0", True), ("0.10.2", True))
    ]
    assert counts == [86, 172, 67]
