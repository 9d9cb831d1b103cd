"""The same question to several engines, and their speeds: one roofline whatever the engine."""

from __future__ import annotations

import pytest

from planner.contract.engine import find_engine
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.serving.across import across, why
from planner.serving.throughput import decode_step, prefill

LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")
CARD = {"gpu": find_gpu("H100"), "gpu_memory_bytes": None, "already_used_bytes": 0}
NAMES = ("vllm", "sglang", "tensorrt-llm")


def asked(names: tuple[str, ...] = NAMES, **axes: object):  # type: ignore[no-untyped-def]
    every = {"quantization": None, "cache": None, "ways": None, "length": 8192} | axes
    return across(LLAMA, [find_engine(name) for name in names], CARD, every, Workload())


def test_the_terms_explain_the_difference_in_cache() -> None:
    accounts = asked()
    for one in accounts:
        held = one.weights_bytes + one.step_bytes + one.other_bytes + one.cache_bytes + one.free_bytes
        assert held == CARD["gpu"].total_memory_bytes  # type: ignore[union-attr]
        assert one.tokens * one.bytes_per_token <= one.cache_bytes
    sentences = list(why(accounts))
    assert len(sentences) == 2 and sentences[0].startswith("SGLang holds 0.9")
    assert "left free" in sentences[0] and "TensorRT-LLM holds 1.0" in sentences[1]


def test_a_cache_type_is_spelled_as_each_engine_has_it() -> None:
    accounts = asked(cache="fp8")
    assert [one.plan.deployment.kv_cache_dtype for one in accounts] == ["fp8", "fp8_e4m3", "fp8"]
    assert all(one.tokens > 1.8 * plain.tokens for one, plain in zip(accounts, asked(), strict=True))


def test_slots_hold_the_asked_requests_of_the_asked_length() -> None:
    every = {"quantization": None, "cache": None, "ways": None, "length": 8192}
    engines = [find_engine(name) for name in ("vllm", "llama.cpp", "ollama")]
    accounts = across(LLAMA, engines, CARD, every, Workload(concurrency=4))
    assert [one.concurrency >= 4 for one in accounts] == [True, True, True]
    for slotted in accounts[1:]:
        assert slotted.cache_bytes == 4 * 8192 * 32 * 2 * 8 * 128 * 2  # layers, k and v, heads, head size, f16
    assert all("slots" in line for line in why(accounts))


def test_layers_in_ram_keep_their_cache_there() -> None:
    card = {"gpu": find_gpu("rtx-4090"), "gpu_memory_bytes": None, "already_used_bytes": 0}
    every = {"quantization": None, "cache": None, "ways": None, "length": 131072}
    (one,) = across(LLAMA, [find_engine("llama.cpp")], card, every, Workload())
    assert one.plan is not None and one.plan.verdict == "fits"
    layers = one.plan.run.placement.offloaded - 1  # type: ignore[attr-defined]
    assert 0 < layers < 32
    assert one.cache_bytes == layers * 131072 * 2 * 8 * 128 * 2
    assert one.elsewhere_bytes == (32 - layers) * 131072 * 2 * 8 * 128 * 2 and one.free_bytes >= 0


def test_what_an_engine_cannot_is_its_row_and_its_sentence() -> None:
    accounts = asked(("vllm", "transformers"), ways=2)
    assert accounts[1].plan is None and accounts[1].verdict == "refused"
    assert any("transformers" in line for line in why(accounts))


def test_speeds_are_the_same_arithmetic() -> None:
    steps = [decode_step(one.plan, sequences=16, context=2048).best for one in asked()]
    assert max(steps) / min(steps) < 1.01
    assert all(prefill(one.plan, tokens=4096).best > 0 for one in asked())


def test_an_engine_without_work_says_so() -> None:
    plain = asked(("transformers",))[0].plan
    assert plain is not None
    with pytest.raises(UsageError, match="speeds are not derived"):
        decode_step(plain, sequences=1, context=100)
