"""Plans of llama-server: placement, verdicts, what fits, the printed command; sizes from the engine's own log lines."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest

from planner.cli.words.questions import ask
from planner.contract.engine import find_engine
from planner.contract.parser import parse
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.layout.placement import Placement
from planner.engines.llama_cpp.levers import fewest_hosted, most_layers
from planner.engines.llama_cpp.log import read_log
from planner.engines.llama_cpp.plan import LlamaPlan, plan_serving
from planner.engines.llama_cpp.resolve import resolve
from planner.engines.llama_cpp.tables.releases import release_of
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB, MIB
from planner.validation.logged import logged_start, read_start_log


def plan(words: str, *, workload: Workload = ONE_REQUEST) -> LlamaPlan:
    asked = ask(["--engine", "llama.cpp", *words.split()], Workload, about="", name="serve")
    assert asked is not None
    found = asked.engine.plan(asked.model, asked.deployment, workload)
    assert isinstance(found, LlamaPlan)
    return found


def test_the_output_layer_goes_to_the_card_first() -> None:
    """OLMoE with -ngl 1: 80.6 MiB on the card, as a load of 2026-08 printed."""
    found = plan("allenai/OLMoE-1B-7B-0924-Instruct -q Q4_K_M --gpu 3090 -ngl 1 -c 4096 --fit off")
    assert found.buffers is not None
    assert found.buffers.model[0] / MIB == pytest.approx(80.6, abs=0.1)
    assert found.buffers.full[0] == 0


def test_layers_from_the_end_and_their_cache() -> None:
    """Qwen3-32B with -ngl 38 of 65 on 18,432 cells of q8_0: 27 layers' 1032.75 of 2448 MiB on the host."""
    found = plan("Qwen/Qwen3-32B -q Q4_K_M --gpu 3090 -ngl 38 -c 18432 -np 1 -ctk q8_0 -ctv q8_0 --fit off")
    assert found.buffers is not None
    assert found.buffers.full == (round(1415.25 * MIB), round(1032.75 * MIB))


def test_unequal_cards_share_by_tensor_split() -> None:
    """The first card whose share, added up, exceeds (layer - first) / layers: 3 of 4 for the first."""
    placement = Placement(devices=2, layers=7, offloaded=8, split=(3.0, 1.0))
    assert [placement.device_of(layer) for layer in range(8)] == [0, 0, 0, 0, 0, 0, 1, 1]
    found = plan("meta-llama/Llama-3.1-8B-Instruct -q Q4_K_M --gpus 4090,3060 -ts 3,1 -c 8192")
    names = [device.name for device in found.devices]
    assert any("4090" in name for name in names)
    assert any("3060" in name for name in names)
    assert found.run is not None
    assert found.run.placement.pipelined


def test_slots_that_are_given_have_caches_of_their_own() -> None:
    """Gemma 3 270M, 1,024 tokens in 3 slots: 1024 / 3 padded to 512, 1,536 cells in 27 MiB, as b10107 printed."""
    found = plan("google/gemma-3-270m-it -q Q8_0 --gpu 3090 -c 1024 -np 3 --fit off --engine-version b10107")
    assert found.run is not None
    assert found.buffers is not None
    assert (found.run.geometry.n_ctx, found.run.geometry.streams) == (1536, 3)
    assert found.buffers.caches == 27 * MIB


def test_recurrent_states_by_slot() -> None:
    """Qwen3.5-27B: 149.62 MiB a slot in F32, whatever the cache's type (printed 598.50 with four slots)."""
    found = plan("Qwen/Qwen3.5-27B -q Q4_K_M --gpu 5090 -c 4096 -ctk q8_0 -ctv q8_0")
    assert found.buffers is not None
    assert sum(found.buffers.state) / MIB == pytest.approx(598.5, abs=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-ctv q8_0 -fa off", "quantized V cache was requested, but this requires Flash Attention"),
        ("-ctv q4_0 -fa off -ctk q8_0", "quantized V cache was requested, but this requires Flash Attention"),
    ],
)
def test_what_the_engine_refuses_is_said_in_its_words(words: str, message: str) -> None:
    found = plan(f"Qwen/Qwen3-8B -q Q4_K_M --gpu 3090 {words}")
    assert found.verdict == "refused"
    assert found.startup_error is not None
    assert message in found.startup_error.message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-ot nothing_like_it=CPU", "matches no tensor"),
        ("-ot exps=CPU", "matches no tensor"),  # a dense model
        ("-ts 1,1", "2 shares for 1 card"),
        ("-mg 3", "there are 1 cards"),
        ("-ngl many", "expected a number"),
        ("-c -5", "expected"),
        ("--engine-version yesterday", "no release of llama.cpp"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        plan(f"Qwen/Qwen3-8B -q Q4_K_M --gpu 3090 {words}")
    assert "\n" not in str(raised.value)


def test_a_longer_context_than_the_models_is_reserved_and_noted() -> None:
    found = plan("Qwen/Qwen3-8B -q Q4_K_M --gpu h100 -c 131072 --fit off")
    assert any("possible training context overflow" in note for note in found.notes)
    assert found.max_model_len == 40960


@pytest.mark.parametrize(
    "words",
    [
        "Qwen/Qwen3-8B -q Q4_K_M --gpu 3090 -c 16384 -fa on",
        "Qwen/Qwen3-30B-A3B -q Q4_K_M --gpu 3060-12gb -c 8192 -np 2 -ctk q8_0 -ctv q8_0",
        "Qwen/Qwen3-30B-A3B -q Q4_K_M --gpu 4090 -c 8192 -ot blk\\.[0-9]\\.ffn_.*_exps=CPU --no-mmap -nkvo",
    ],
)
def test_the_printed_command_gives_the_plan_again(words: str) -> None:
    first = plan(words)
    gpu = words.split("--gpu ")[1].split()[0]
    command = list(find_engine("llama.cpp").command(first))
    asked = ask([*command, "--gpu", gpu], Workload, about="", name="serve")
    assert asked is not None
    again = asked.engine.plan(asked.model, asked.deployment)
    assert isinstance(again, LlamaPlan)
    assert again.buffers == first.buffers
    assert again.verdict == first.verdict


def test_fit_shrinks_a_context_that_was_not_given() -> None:
    found = plan("Qwen/Qwen3-8B -q Q8_0 --gpu 3060-12gb")
    assert found.run is not None
    assert 4096 <= found.run.geometry.n_ctx < 40960
    assert found.devices[0].free_bytes >= 1024 * MIB


def test_fit_moves_experts_to_host_memory() -> None:
    found = plan("Qwen/Qwen3-30B-A3B -q Q4_K_M --gpu 3060-12gb -c 8192")
    assert found.run is not None
    assert 0 < found.run.placement.experts_on_host < 48
    assert found.run.placement.complete
    assert found.devices[0].free_bytes >= 1024 * MIB


def test_the_largest_number_of_layers_is_the_largest_that_fits() -> None:
    found = plan("Qwen/Qwen3-32B -q Q4_K_M --gpu 3060-12gb -c 4096 -np 1 --fit off")
    assert found.verdict == "does_not_fit"
    count = most_layers(found)
    assert count is not None

    def verdict(layers: int) -> str:
        changed = replace(found.deployment, n_gpu_layers=str(layers))
        return plan_serving(found.model, changed).verdict

    assert verdict(count) in ("fits", "tight")
    assert verdict(count + 1) == "does_not_fit"


def test_the_fewest_experts_on_the_host() -> None:
    found = plan("Qwen/Qwen3-30B-A3B -q Q4_K_M --gpu 3060-12gb -c 8192 -np 1 --fit off")
    count = fewest_hosted(found)
    assert count is not None
    verdicts = [
        plan_serving(found.model, replace(found.deployment, n_cpu_moe=number)).verdict for number in (count - 1, count)
    ]
    assert verdicts[0] == "does_not_fit"
    assert verdicts[1] in ("fits", "tight")


def test_a_plan_that_fits_still_fits_on_a_larger_card() -> None:
    model = load_model("Qwen/Qwen3-14B")
    sizes = [number * GIB for number in (8, 10, 12, 16, 24)]
    verdicts = [
        plan_serving(
            model,
            Deployment(gpu=find_gpu("3090"), gpu_memory_bytes=size, quantization="Q4_K_M", ctx_size=8192, fit="off"),
        ).verdict
        for size in sizes
    ]
    order = ["does_not_fit", "tight", "fits"]
    assert all(order.index(a) <= order.index(b) for a, b in itertools.pairwise(verdicts))
    assert {verdicts[0], verdicts[-1]} == {"does_not_fit", "fits"}


def test_host_memory_is_judged_where_it_is_stated() -> None:
    words = "Qwen/Qwen3-32B -q Q8_0 --gpu 3060-12gb -ngl 10 -c 4096"
    assert plan(f"{words} --host-memory 16GiB").verdict == "does_not_fit"
    assert plan(f"{words} --host-memory 64GiB").verdict in ("fits", "tight")


def test_releases_by_build_month_and_name() -> None:
    assert release_of("b7400").has("fit")
    assert not release_of("b5466").has("glu")
    assert not release_of("2025-05").has("few_outputs")
    assert release_of("v0.5.0").has("few_outputs")
    assert release_of("2027-03").has("few_outputs")  # open at the newest end


def test_a_log_says_what_it_loaded() -> None:
    start = read_log(
        [
            "build: 7400 (abc) with gcc",
            "load_tensors: offloaded 37/37 layers to GPU",
            "load_tensors:   CPU_Mapped model buffer size =   333.84 MiB",
            "load_tensors:        CUDA0 model buffer size =  4455.34 MiB",
            "llama_context: n_ctx         = 16384",
            "llama_kv_cache:      CUDA0 KV buffer size =  2304.00 MiB",
            "llama_kv_cache: size = 1764.00 MiB ( 16384 cells, 4/1 seqs), K (f16): 1152.00 MiB, V (q8_0): 612.00 MiB",
            "sched_reserve:      CUDA0 compute buffer size =   112.01 MiB",
            "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory",
        ]
    )
    assert start.version == "b7400"
    assert start.measured["kv_CUDA0_bytes"] == 2304 * MIB
    assert start.measured["model_CUDA0_bytes"] == 4455.34 * MIB
    assert start.error is not None
    assert start.words[start.words.index("--cache-type-v") + 1] == "q8_0"


def test_a_plan_is_quick() -> None:
    """1 ms once the graph is known and 10 ms the first time, on an idle core; four times that on a busy one."""
    model = load_model("Qwen/Qwen3-32B")
    deployment = Deployment(gpu=find_gpu("3090"), quantization="Q4_K_M", ctx_size=8192, fit="off")
    plan_serving(model, replace(deployment, ctx_size=4096))
    best_first = min(_seconds(model, replace(deployment, ctx_size=8192 + 256 * number)) for number in range(5))
    best_again = min(_seconds(model, deployment) for _ in range(10))
    assert best_first < 0.04
    assert best_again < 0.004


def _seconds(model: object, deployment: Deployment) -> float:
    start = time.perf_counter()
    plan_serving(model, deployment)  # type: ignore[arg-type]
    return time.perf_counter() - start


LOG = """\
build: 10107 (abc) with gcc
print_info: file type   = Q4_K - Medium
load_tensors: offloaded 37/37 layers to GPU
load_tensors:        CUDA0 model buffer size =  4455.34 MiB
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 16384
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = auto
llama_context: kv_unified    = true
llama_kv_cache:      CUDA0 KV buffer size =  2304.00 MiB
sched_reserve:      CUDA0 compute buffer size =   112.01 MiB
sched_reserve:  CUDA_Host compute buffer size =   32.01 MiB
"""


def test_a_log_is_planned_again_and_compared(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOG)
    found = logged_start(
        read_start_log(tmp_path / "server.log"), model="Qwen/Qwen3-8B", stated=parse([Deployment], ["--gpu", "3090"])
    )
    assert {row.component for row in found.rows} == {"model CUDA0", "kv CUDA0", "compute CUDA0", "compute CUDA_Host"}
    assert all(abs(row.error) < 0.001 for row in found.rows)


@pytest.mark.parametrize("variant", ["lm-studio", "koboldcpp", "ik_llama.cpp"])
def test_kin_have_their_own_defaults(variant: str) -> None:
    found = plan(f"Qwen/Qwen3-8B -q Q4_K_M --gpu 3090 --variant {variant}")
    assert found.run is not None
    expected = {"lm-studio": 4096, "koboldcpp": 8192, "ik_llama.cpp": 40960}[variant]
    assert found.run.geometry.n_ctx == expected
    assert found.run.geometry.slots == 1


def test_apples_memory_is_shared_up_to_the_wired_limit() -> None:
    found = plan("Qwen/Qwen3-8B -q Q4_K_M --gpu m1-max-32gb -c 8192")
    assert found.run is not None
    assert found.run.backend == "metal"
    assert found.devices[0].total_bytes < 32 * GIB


@pytest.mark.parametrize(
    ("day", "flash", "fused", "mla", "batch"),
    [("2025-07", False, False, 0, 0), ("2025-11-10", True, True, 0, 0), ("2026-09", True, True, 3, 256)],
)
def test_defaults_of_the_fork(day: str, flash: bool, fused: bool, mla: int, batch: int) -> None:
    """common/common.h of ik_llama.cpp: commits 41d6c42b9, ddc88bac1 and 37d82c231."""
    deployment = Deployment(gpu=find_gpu("rtx-4090"), variant="ik_llama.cpp", engine_version=day, quantization="Q4_K_M")
    run = resolve(load_model("deepseek-ai/DeepSeek-V3"), deployment)
    graph = run.batch()
    assert (graph.flash_attention, graph.fused_moe, graph.mla, graph.attention_max_batch) == (flash, fused, mla, batch)
    repacked = resolve(load_model("deepseek-ai/DeepSeek-V3"), replace(deployment, run_time_repack=True))
    assert (run.op_offload, repacked.op_offload) == (True, False)


def test_experts_that_a_checkpoint_has_in_mxfp4_stay_so() -> None:
    run = resolve(load_model("openai/gpt-oss-20b"), Deployment(gpu=find_gpu("rtx-4090")))
    experts = [tensor for tensor in run.tensors if tensor.name == "blk.0.ffn_down_exps.weight"]
    assert [tensor.nbytes for tensor in experts] == [32 * 2880 * 2880 // 32 * 17]  # experts, rows, blocks of 32
