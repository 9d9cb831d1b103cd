"""Cases whose numbers follow from the arithmetic written beside them."""

from __future__ import annotations

from typing import Any

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.contract.engine import find_engine
from planner.contract.workload import Accept, Workload
from planner.engines.vllm.levers import weight_choice
from planner.errors import UsageError
from planner.levers.advice import Advice, advise, kept_inputs
from planner.levers.goal import Goal, parse_goal, solve
from planner.levers.question import ServingQuestion
from planner.units import GIB


def ask(
    name: str, gpu: str, *, keep: tuple[str, ...] = (), concurrency: int = 1, accept: Accept = "tight", **inputs: object
) -> tuple[ServingQuestion, Advice]:
    question = ServingQuestion(
        engine=find_engine("vllm"),
        model=load_model(name),
        deployment=Deployment(gpu=find_gpu(gpu), **inputs),  # type: ignore[arg-type]
        workload=Workload(concurrency=concurrency, accept=accept),
    )
    return question, advise(question, question.ask({}), keep=kept_inputs(question, keep))


def saved(advice: Advice) -> dict[str, int]:
    return {effect.setting.name: effect.saves_bytes for effect in advice.levers}


def flags(advice: Advice) -> list[list[str]]:
    return [[setting.flag for setting in one.settings] for one in advice.plans]


EIGHT: dict[str, Any] = {"max_model_len": 32_768, "concurrency": 8}


def test_8b_on_24_gib_with_eight_sequences_of_32k() -> None:
    """131,072 B a token x 32,768 = 4 GiB a sequence, 32 GiB for eight: more than the card before any weight.

    8-bit keys and values halve that to 16 GiB. One sequence less each way: concurrency 1 keeps 4 of 32 GiB.
    Of 0.9 x 23.64 = 21.28 GiB, weights (14.99), activations (0.6) and driver (0.3) leave 5.3 to 5.5 for the cache:
    eight sequences of 5,300 to 5,700 tokens, with every term high; of a few more at best estimates, which is accepted
    too unless --accept fits asks for the first. Four-bit weights do nothing for the cache.
    """
    _, advice = ask("meta-llama/Llama-3.1-8B-Instruct", "4090", accept="fits", **EIGHT)
    single = saved(advice)
    at_best = saved(ask("meta-llama/Llama-3.1-8B-Instruct", "4090", **EIGHT)[1])
    assert 0 < single["max-model-len"] - at_best["max-model-len"] <= GIB // 4
    assert single["kv-cache-dtype"] == 16 * GIB
    assert single["concurrency"] == 28 * GIB
    kept_tokens = 32_768 - single["max-model-len"] // (8 * 131_072)
    assert single["max-model-len"] % (8 * 131_072 * 16) == 0  # whole blocks of 16 tokens
    assert 5_300 <= kept_tokens <= 5_700
    # one sequence of 32k takes 4 GiB of those; four cards hold a quarter of the weights and 8 GiB of cache each, which
    # "fits" since the spreads of what lies outside the fraction are added in quadrature
    alone = {effect.setting.name for effect in advice.levers if effect.fits_alone}
    assert alone == {"concurrency", "max-model-len", "tensor-parallel-size", "pipeline-parallel-size"}
    assert advice.relief is not None
    (term,) = advice.relief.excess
    card = find_gpu("4090").total_memory_bytes
    assert (term.name, term.size_bytes, term.excess_bytes) == ("kv_cache", 32 * GIB, 32 * GIB - card)
    assert any("quantised weights do nothing for it" in note for note in advice.notes)


def test_the_same_with_users_and_context_kept_takes_both_8_bit_cache_and_4_bit_weights() -> None:
    """16 GiB of cache and 14.99 of weights exceed 23.6 GiB; with 8-bit weights of 8.5 still; with 4-bit, 5.4 + 16 fit.

    One-card sets must therefore hold both fp8 cache and AWQ weights.
    """
    _, advice = ask("meta-llama/Llama-3.1-8B-Instruct", "4090",
                    keep=("max-model-len", "concurrency", "cpu-offload-gb"), **EIGHT)  # fmt: skip
    on_one_card = [one for one in flags(advice) if not any("parallel" in flag for flag in one)]
    assert on_one_card
    for one in on_one_card:
        assert "--kv-cache-dtype fp8" in one and "--quantization awq" in one
    assert any("--tensor-parallel-size 4" in one for one in flags(advice))


def test_70b_on_one_80_gb_card_takes_two_cards_or_4_bit() -> None:
    """70,553,706,496 weights x 2 B = 131.4 GiB on 79.19 GiB; half of them, 65.7, or a quarter, 37, fit."""
    _, advice = ask("meta-llama/Llama-3.1-70B-Instruct", "H100", max_model_len=8192)
    assert ["--quantization awq"] in flags(advice)
    assert ["--tensor-parallel-size 2"] in flags(advice)
    assert advice.relief is not None and advice.relief.cards == 2
    (term,) = advice.relief.excess
    rope = 131_072 * 128 * 2
    assert term.name == "weights" and term.size_bytes == pytest.approx(70_553_706_496 * 2 + rope, abs=2**20)
    single = saved(advice)
    # 80 layers and the head in 8 bit instead of 16: one byte of each quantised weight, less scales
    assert 0.95 * 68.45e9 < single["quantization-8bit"] < 68.5e9


def test_a_shortage_outside_the_fraction_lowers_it_and_one_inside_raises_it() -> None:
    """0.98 of an RTX 4090 leaves 0.47 GiB for context, graphs and warm-up; 0.5 of an H100 leaves half of it idle."""
    _, lower = ask("meta-llama/Llama-3.1-8B-Instruct", "4090", max_model_len=8192, gpu_memory_utilization=0.98)
    (down,) = [effect for effect in lower.levers if effect.setting.name == "gpu-memory-utilization"]
    assert float(down.setting.after) < 0.98 and "run time" in down.setting.phase and down.fits_alone
    _, higher = ask("meta-llama/Llama-3.1-8B-Instruct", "H100", gpu_memory_utilization=0.4)
    (up,) = [effect for effect in higher.levers if effect.setting.name == "gpu-memory-utilization"]
    assert float(up.setting.after) > 0.4 and up.setting.phase == "cache sizing" and up.fits_alone


def test_the_context_is_solved_for_exactly() -> None:
    question, advice = ask("meta-llama/Llama-3.1-8B-Instruct", "H100", max_model_len=131_072, concurrency=8)
    (one,) = [effect for effect in advice.levers if effect.setting.name == "max-model-len"]
    longest = int(one.setting.after)
    assert one.fits_alone and question.fits({"max_model_len": longest})
    assert not question.fits({"max_model_len": longest + 1})


@pytest.mark.parametrize(
    ("gpu", "eight", "four"),
    [
        ("h100", "fp8", "awq"), ("4090", "fp8", "awq"), ("a100 80gb", "w8a8", "awq"),
        ("v100-sxm2-32gb", "gptq-int8", "gptq"), ("b200", "fp8", "nvfp4"),
    ],
)  # fmt: skip
def test_weight_formats_by_card(gpu: str, eight: str, four: str) -> None:
    card = find_gpu(gpu)
    assert (weight_choice(8, card)["name"], weight_choice(4, card)["name"]) == (eight, four)
    for name in (eight, four):
        plan_serving(load_model("meta-llama/Llama-3.1-8B-Instruct"), Deployment(gpu=card, quantization=name))


def test_an_older_card_is_told_why_there_is_no_fp8() -> None:
    _, advice = ask("meta-llama/Llama-3.1-70B-Instruct", "a100 80gb", max_model_len=8192)
    (eight,) = [effect for effect in advice.levers if effect.setting.name == "quantization-8bit"]
    assert "no fp8" in eight.setting.detail and "8.9" in eight.setting.detail


def test_a_quantised_checkpoint_gets_no_other_weight_format() -> None:
    _, advice = ask("Qwen/Qwen2.5-72B-Instruct-AWQ", "4090", max_model_len=8192)
    assert not any("quantization" in effect.setting.name for effect in advice.levers)
    assert any("quantised already" in note for note in advice.notes)


@pytest.mark.parametrize(
    ("text", "what", "users"),
    [
        ("largest context at 16 users", "max-model-len", 16), ("context", "max-model-len", None),
        ("largest batch", "concurrency", None), ("cheapest card", "gpu", None), ("fewest GPUs", "gpus", None),
        ("gpus at 1,000 requests", "gpus", 1000),
    ],
)  # fmt: skip
def test_goals_as_people_say_them(text: str, what: str, users: int | None) -> None:
    assert parse_goal(text) == Goal(what=what, users=users)


@pytest.mark.parametrize("text", ["", "happiness", "largest batch at 4 users", "context at 0 users", "x" * 200])
def test_other_goals_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_goal(text)


def test_goals_are_best_possible() -> None:
    question, _ = ask("meta-llama/Llama-3.1-8B-Instruct", "H100", max_model_len=8192)
    length = int(solve(question, Goal(what="max-model-len", users=16)).value)
    assert question.fits({"max_model_len": length, "concurrency": 16})
    assert not question.fits({"max_model_len": length + 1, "concurrency": 16})
    batch = int(solve(question, Goal(what="concurrency")).value)
    assert question.fits({"concurrency": batch}) and not question.fits({"concurrency": batch + 1})
    large, _ = ask("meta-llama/Llama-3.1-70B-Instruct", "H100", max_model_len=8192)
    assert solve(large, Goal(what="gpus")).value == "2"
    assert "H200" not in solve(large, Goal(what="gpu")).value  # 131.4 GiB of weights leave too little of 139.8


def test_unknown_inputs_to_keep_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean"):
        kept_inputs(ask("meta-llama/Llama-3.1-8B-Instruct", "H100")[0], ["max-model-length"])
