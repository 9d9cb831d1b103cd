"""Whole plans: the two opposite failures, the fractions that work, commands, laws, and the engine's door."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from planner.contract.component import total
from planner.contract.engine import find_engine
from planner.contract.parser import parse
from planner.contract.workload import Workload
from planner.engines.sglang.deployment import Deployment
from planner.engines.sglang.engine import SGLANG
from planner.engines.sglang.plan import SglangPlan, plan_serving
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB

QWEN = load_model("Qwen/Qwen2.5-7B-Instruct")


def plan(name: str = "", workload: Workload = Workload(), **inputs: object) -> SglangPlan:  # noqa: B008
    given_inputs: dict[str, object] = {"gpu": find_gpu("4090"), "engine_version": "0.5.5"} | inputs
    return plan_serving(load_model(name) if name else QWEN, Deployment(**given_inputs), workload)  # type: ignore[arg-type]


def test_a_start_that_wants_a_higher_fraction() -> None:
    found = plan(mem_fraction_static=0.5)
    assert found.verdict == "does_not_fit" and found.startup_error is not None
    assert found.startup_error.kind == "no_cache"
    assert "increase --mem-fraction-static" in found.startup_error.message
    fractions = found.fractions()
    assert fractions.starts is not None and 0.6 < fractions.starts < 0.65  # 14.3 of 23.1 GiB are weights
    assert plan(mem_fraction_static=fractions.starts).startup_error is None


def test_a_run_that_wants_a_lower_fraction() -> None:
    found = plan(mem_fraction_static=0.99)
    assert found.startup_error is not None and found.startup_error.kind == "outside_budget"
    assert "lower --mem-fraction-static" in found.startup_error.message
    assert "LOWER" in SGLANG.section(found).headline
    greatest = found.fractions().greatest
    assert greatest is not None and greatest < 0.99
    assert plan(mem_fraction_static=greatest).verdict in ("fits", "tight")


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_printed_bounds_are_the_turning_points(concurrency: int) -> None:
    workload = Workload(concurrency=concurrency)
    bounds = plan(workload=workload).fractions()
    assert bounds.works and bounds.least is not None and bounds.greatest is not None
    for fraction, fits in (
        (bounds.least, True),
        (bounds.least - 0.001, False),
        (bounds.greatest, True),
        (bounds.greatest + 0.001, False),
    ):
        found = plan(workload=workload, mem_fraction_static=round(fraction, 3))
        assert found.accepted is fits, fraction


def test_context_length_is_no_promise_and_does_not_lower_the_pool() -> None:
    short, long = plan(context_length=4096), plan(context_length=32768)
    assert short.cache.tokens == long.cache.tokens
    tight = plan(context_length=32768, mem_fraction_static=0.66)
    assert tight.verdict == "does_not_fit" and tight.startup_error is None
    assert any("is no promise" in note for note in tight.notes)


def test_concurrency_that_states_cap() -> None:
    found = plan("Qwen/Qwen3.6-27B", gpu=find_gpu("H100"), engine_version="0.5.20", quantization="fp8")
    requests = found.pools.requests
    assert requests.capped_by == "states" and found.pools.states is not None
    assert requests.count == found.pools.states.slots // 5
    assert any("because of the state slots" in note for note in found.notes)
    alone = plan(
        "Qwen/Qwen3.6-27B", gpu=find_gpu("H100"), engine_version="0.5.20", quantization="fp8", disable_radix_cache=True
    )
    assert alone.pools.requests.count > requests.count


def test_foreign_memory_counts_twice() -> None:
    clean, shared = plan(), plan(already_used_bytes=GIB)
    fraction = clean.resolved.fraction
    lost = (clean.pools.tokens - shared.pools.tokens) * 57_344
    assert lost == pytest.approx(GIB * fraction, rel=1e-4)


def test_data_parallel_attention_replicates_attention_and_shares_experts() -> None:
    r1 = "deepseek-ai/DeepSeek-R1"
    whole = plan(r1, gpu=find_gpu("H200"), tp_size=8)
    ranks = plan(r1, gpu=find_gpu("H200"), tp_size=8, dp_size=8, enable_dp_attention=True)
    weights = [next(part.best for part in one.budget.stage.static if part.name == "weights") for one in (whole, ranks)]
    assert weights[1] > weights[0]
    assert ranks.points[0].concurrency % 8 == 0
    with pytest.raises(UsageError, match="--dp-size"):
        plan(r1, gpu=find_gpu("H200"), tp_size=8, enable_dp_attention=True)


def test_what_is_not_known_is_said() -> None:
    later = plan("deepseek-ai/DeepSeek-V4-Flash", gpu=find_gpu("H200"), tp_size=4, engine_version="0.5.20")
    assert later.verdict == "unknown" and "0.5.12" in later.unknown[0]
    draft = plan(engine_version="0.5.20", speculative_algorithm="STANDALONE", speculative_draft_model_path="x/y")
    assert draft.verdict == "unknown" and "draft model x/y" in draft.unknown[0]


def test_a_context_beyond_the_model_is_refused_unless_allowed() -> None:
    found = plan(context_length=1 << 20)
    assert found.verdict == "refused" and found.startup_error is not None
    assert plan(context_length=1 << 20, allow_longer_context=True).verdict != "refused"


COMMANDS = [
    "--gpu 4090 --tp 2 --mem-fraction-static 0.85 --max-running-requests 64",
    "--gpu H100 --dp-size 4 --tp_size 4 --enable-dp-attention --chunked-prefill-size 16384",
    "--gpu H100 --kv-cache-dtype fp8_e5m2 --disable-cuda-graph --log-level debug --enable-hierarchical-cache",
    "--gpu H100 --speculative-algorithm NGRAM --max-total-tokens 100000 --cpu-offload-gb 2",
    "--gpu-memory 79GiB --engine-version 0.4.6 --enable-lora --max-lora-rank 32 --page-size 16",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_printed_command_gives_the_plan_again(words: str) -> None:
    records = [Deployment, Workload]
    parsed = parse(records, shlex.split(words), other=SGLANG.takes)
    deployment = SGLANG.deployment(parsed)
    first = plan_serving(QWEN, deployment)
    printed = list(SGLANG.command(first))
    assert printed[:3] == ["python", "-m", "sglang.launch_server"] and printed[4] == QWEN.id
    card = shlex.split(words)[:2]
    version = ["--engine-version", deployment.engine_version]
    again = parse(records, [*card, *version, *printed[5:]], other=SGLANG.takes)
    second = plan_serving(QWEN, SGLANG.deployment(again))
    assert (second.cache, second.verdict, second.devices) == (first.cache, first.verdict, first.devices)
    assert list(SGLANG.command(second)) == printed


def test_an_option_of_another_release_is_refused_with_the_nearest() -> None:
    parsed = parse(
        [Deployment], shlex.split("--gpu 4090 --engine-version 0.4.6 --enable-unified-memory"), other=SGLANG.takes
    )
    with pytest.raises(UsageError, match=r"SGLang 0\.4\.6 has no --enable-unified-memory"):
        SGLANG.deployment(parsed)


@given(
    memory=st.integers(12, 200),
    fraction=st.integers(300, 990),
    tensor=st.sampled_from([1, 2, 4]),
    release=st.sampled_from(["0.4.4", "0.4.9.post2", "0.5.5", "0.5.12", "0.5.23"]),
)
@hypothesis_settings(max_examples=40, deadline=None)
def test_parts_add_up_and_a_larger_card_never_hurts(memory: int, fraction: int, tensor: int, release: str) -> None:
    deployment = Deployment(
        gpu_memory_bytes=memory * GIB, tp_size=tensor, engine_version=release, mem_fraction_static=fraction / 1000
    )
    found = plan_serving(QWEN, deployment)
    for device in found.devices:
        held = total(device.components, "best") + device.cache_bytes
        assert device.total_bytes - held == device.free_bytes
    larger = plan_serving(QWEN, replace(deployment, gpu_memory_bytes=(memory + 8) * GIB))
    assert (larger.cache.tokens or 0) >= (found.cache.tokens or 0)
    if found.startup_error is None and found.pools.requests.count == larger.pools.requests.count:
        assert larger.startup_error is None


def test_the_registry_knows_it() -> None:
    assert find_engine("SGLang") is SGLANG
    assert SGLANG.versions == ("0.3.6", "0.5.23")


@pytest.mark.parametrize(
    ("name", "bits"),
    [("w8a8_int8", 8), ("w8a8_fp8", 8), ("modelopt_fp4", 4.5), ("gptq_marlin", 4.156), ("petit_nvfp4", 4.5)],
)
def test_quantisation_by_the_engine_s_own_names(name: str, bits: float) -> None:
    found = plan(quantization=name, engine_version="0.5.9")
    linear = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944)  # q, o, k, v, gate, up, down of Qwen2.5-7B
    plain = 2 * 2 * 152064 * 3584
    assert found.budget.stage.static[0].best == pytest.approx(linear * bits / 8 + plain, rel=0.006)
    again = SGLANG.plan(QWEN, Deployment(gpu=find_gpu("4090"), quantization=name, engine_version="0.5.9"))
    assert ("--quantization" in SGLANG.command(again)) is (name == "w8a8_fp8")  # the others are exports by name


@pytest.mark.parametrize(("name", "version"), [("w8a8_fp8", "0.4.3"), ("qoq", "0.5.16"), ("marlin", "0.5.23")])
def test_quantisation_that_a_release_does_not_take(name: str, version: str) -> None:
    with pytest.raises(UsageError, match="has no such method"):
        plan(quantization=name, engine_version=version)


@pytest.mark.parametrize("name", ["w4afp8", "moe_wna16", "compressed-tensors"])
def test_quantisation_that_only_a_checkpoint_can_say(name: str) -> None:
    with pytest.raises(UsageError, match="wants a checkpoint that is stored so"):
        plan(quantization=name, engine_version="0.5.9")
    stored = load_model("deepseek-ai/DeepSeek-V3.1")
    assert (
        SGLANG.plan(stored, Deployment(gpu=find_gpu("H200"), tp_size=8, quantization=name)).scheme.label == "fp8_block"
    )
