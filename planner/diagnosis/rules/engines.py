"""Engines' own refusals, inverted: the context, fraction and number of sequences that would fit. Sizes in bytes.

vLLM's checks are linear in the length for plain attention, so needed : length = available : fitting length. Hybrid
models (windows, state) are not linear; the number that vLLM prints itself is preferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from planner.diagnosis.result import Message, Verdict
from planner.diagnosis.rules.thresholds import OTHER_PERCENT, other_least, percent
from planner.diagnosis.rules.torch_figures import CONTEXT_TYPICAL_BYTES
from planner.units import GIB, format_size

# vLLM's default block; a fitting length is a multiple of it.
_BLOCK_TOKENS = 16
# Below this a context serves hardly any request.
_USEFUL_TOKENS = 4_096
# vLLM computes the fraction from a total that is read earlier than free: leave two hundredths.
_FRACTION_STEP = 0.02
# Context, graphs and driver need the rest.
_MOST_FRACTION = 0.98
# TGI's warm-up swallows any error; below this many tokens the token budget is not what is short.
_TINY_PREFILL_TOKENS = 1024


def fitting_length(length: int, needed: int, available: int) -> int:
    """The longest context, a multiple of 16, whose cache fits in `available`, where `length` needs `needed` bytes."""
    if needed <= 0 or available <= 0:
        return 0
    return length * available // needed // _BLOCK_TOKENS * _BLOCK_TOKENS


def kv_tokens(message: Message) -> Verdict:
    """vLLM V0: max_model_len is more than the tokens of the KV cache."""
    length, tokens = message.bytes_of("max_model_len") or 0, message.bytes_of("kv_tokens") or 0
    fits = tokens // _BLOCK_TOKENS * _BLOCK_TOKENS
    return Verdict(
        failure="engine_budget",
        confidence="high",
        rule="the engine refuses: one request of max_model_len is longer than the KV cache",
        evidence=(
            f"{length} tokens asked for, {tokens} fit: the cache holds {tokens / max(length, 1):.2f} such requests",
        ),
        would_change=(
            f"max_model_len of {fits} or less",
            "a KV cache of twice the tokens (8-bit KV), if that is enough",
        ),
        advise=_room_for_cache(message, fits, length, tokens),
        derived={"fitting_max_model_len": fits, "requests_that_fit": tokens // max(length, 1)},
    )


def kv_bytes(message: Message) -> Verdict:
    """vLLM V1: the KV cache of one request needs more than is available."""
    length = message.bytes_of("max_model_len")
    needed, available = message.bytes_of("needed_kv_bytes"), message.bytes_of("available_kv_bytes")
    printed = message.bytes_of("estimated_max_len")
    evidence: list[str] = []
    derived: dict[str, int | float] = {}
    if needed is not None and available is not None:
        missing = max(0, needed - available)
        evidence.append(
            f"{format_size(needed)} of KV cache needed, {format_size(available)} available: "
            f"{format_size(missing)} short"
        )
        derived["missing_kv_bytes"] = missing
        if length is not None:
            derived["fitting_max_model_len"] = fitting_length(length, needed, available)
    fraction = _fraction_with(message, derived.get("missing_kv_bytes"))
    if fraction is not None:
        derived["fitting_gpu_memory_utilization"] = fraction
    if printed is not None:
        evidence.append(f"the engine's own estimate of the longest context: {printed} tokens")
        derived["fitting_max_model_len"] = printed // _BLOCK_TOKENS * _BLOCK_TOKENS
    elif "fitting_max_model_len" in derived:
        evidence.append(
            f"a context of {derived['fitting_max_model_len']} fits if the cache grows with the length: {length} x "
            "available / needed, in blocks of 16"
        )
    return Verdict(
        failure="engine_budget",
        confidence="high",
        rule="the engine refuses: the KV cache of one request of max_model_len exceeds its budget",
        evidence=tuple(evidence),
        would_change=("a shorter max_model_len, an 8-bit KV cache (half the need) or a larger fraction",),
        advise=_room_for_cache(message, derived.get("fitting_max_model_len", 0), needed, available),
        derived=derived,
    )


def _fraction_with(message: Message, missing: float | None) -> float | None:
    """The fraction that adds `missing` bytes, to two decimals, where the log prints the budget; at most 0.98."""
    total, fraction = message.context.get("total_gpu_memory_gib"), message.context.get("gpu_memory_utilization")
    if missing is None or total is None or fraction is None:
        return None
    wanted = math.ceil((float(fraction) + missing / (float(total) * GIB)) * 100) / 100 if float(total) else 1.0
    return wanted if wanted <= _MOST_FRACTION else None


def is_useful_length(fits: float, asked: int | None) -> bool:
    """Whether a shorter context is a remedy at all: a quarter of what was asked, or some thousand tokens and 2% of "
    "it."""
    return fits > 0 and (asked is None or fits * 4 >= asked or (fits >= _USEFUL_TOKENS and fits * 50 >= asked))


def _room_for_cache(message: Message, fits: float, needed: int | None, available: int | None) -> tuple[str, ...]:
    """The remedies of a cache that is too small, those first that can close the gap."""
    halved = ("kv_8_bit",) if needed is None or available is None or needed <= 2 * available else ()
    if is_useful_length(fits, message.bytes_of("max_model_len")):
        return ("lower_max_model_len", "raise_utilization", *halved, "shrink_engine_work", "quantize_or_split")
    return (
        "raise_utilization",
        "shrink_engine_work",
        "fewer_graphs",
        *halved,
        "quantize_or_split",
        "lower_max_model_len",
    )


def sglang_profiled(message: Message) -> Verdict:
    """SGLang lowers max_total_tokens to what its budget holds; a budget of nothing is a failure."""
    tokens = message.bytes_of("kv_tokens") or 0
    if tokens > 0:
        return Verdict(
            failure="not_a_failure",
            second="engine_budget",
            confidence="medium",
            rule="the engine lowers max_total_tokens to what its budget holds",
            evidence=(f"the pool holds {tokens:,} tokens",),
            would_change=("a pool that is too small for one request",),
            advise=("raise_mem_fraction",),
        )
    return Verdict(
        failure="engine_budget",
        confidence="high",
        rule="the budget leaves no token: weights and what is kept free take more than the fraction",
        evidence=(f"the profiled pool is {tokens:,} tokens",),
        would_change=("a larger fraction, a smaller weight format or more GPUs",),
        advise=("raise_mem_fraction", "quantize_or_split", "shrink_engine_work"),
    )


def negative_cache(message: Message) -> Verdict:
    """vLLM's own line on what is left for the cache, when that is nothing."""
    available = message.bytes_of("available_kv_bytes") or 0
    return Verdict(
        failure="engine_budget",
        confidence="high",
        rule="nothing is left for the KV cache within the fraction",
        evidence=(f"{format_size(available)} left: weights and the profiled peak exceed the engine's share",),
        would_change=("a larger fraction, less profiled work, a smaller weight format or more GPUs",),
        advise=("raise_utilization", "shrink_engine_work", "quantize_or_split", "look_at_card"),
    )


def free_on_startup(message: Message) -> Verdict:
    """vLLM: less is free at start than fraction x capacity. Whose memory it is decides the class."""
    free, total = message.bytes_of("free_bytes") or 0, message.bytes_of("total_bytes") or 0
    asked, fraction = message.bytes_of("requested_bytes") or 0, message.number("fraction") or 0.0
    occupied = max(0, total - free)
    fits = max(0.0, int((free / total - _FRACTION_STEP) * 100) / 100) if total else 0.0
    held = occupied - CONTEXT_TYPICAL_BYTES > other_least(total)
    return Verdict(
        failure="other_process" if held else "engine_budget",
        second="engine_budget" if held else "other_process" if occupied * 100 > total * OTHER_PERCENT else None,
        confidence="high" if held or occupied * 10 < total else "medium",
        rule="free at start is below fraction x capacity"
        + (f", and more than {OTHER_PERCENT}% of the card (and a context) is taken already" if held else ""),
        evidence=(
            f"{fraction:g} x {format_size(total)} = {format_size(asked)} wanted, {format_size(free)} free: "
            f"{format_size(max(0, asked - free))} short",
            f"{format_size(occupied)} ({percent(occupied, total)}%) was taken before this engine allocated anything",
        ),
        would_change=(f"a fraction of {fits:g}", "nothing else on the card (but a display and context stay)"),
        advise=("look_at_card", "lower_utilization_to_free") if held else ("lower_utilization_to_free", "look_at_card"),
        derived={"fitting_gpu_memory_utilization": fits, "missing_bytes": max(0, asked - free)},
    )


def profiling(message: Message) -> Verdict:
    """vLLM: free memory grew while the engine profiled, so something else released memory."""
    before, after = message.bytes_of("free_before_bytes"), message.bytes_of("free_after_bytes")
    released = 0 if before is None or after is None else after - before
    if before is not None and after is not None and released <= 0:
        return Verdict(
            failure="undecided",
            second="other_process",
            confidence="low",
            rule="free memory did not change while the engine loaded and profiled",
            evidence=(
                f"free before {format_size(before)}, after {format_size(after)}: another process released as much "
                f"as the "
                "engine took, or the engine used another device than it measured",
            ),
            would_change=("starting it alone on the card: if it starts, another process was the matter",),
            advise=("start_one_by_one", "look_at_card"),
        )
    grown = () if before is None else (f"{format_size(released)} became free while the engine profiled",)
    return Verdict(
        failure="other_process",
        second="engine_budget",
        confidence="high" if before is not None else "medium",
        rule="free memory grew while the engine profiled: another process or instance ended or released memory",
        evidence=grown or ("the message says that memory was released by others",),
        would_change=("starting one instance after another: if the error goes, this was it",),
        advise=("start_one_by_one", "look_at_card"),
        derived={"released_bytes": released} if before is not None else {},
    )


def sglang_tokens(message: Message) -> Verdict:
    """SGLang: the token pool is full, or tokens are free but not in whole pages."""
    tried, available = message.bytes_of("tried_tokens"), message.bytes_of("available_tokens")
    paged = tried is not None and available is not None and available >= tried
    numbers = () if tried is None or available is None else (f"{tried} tokens wanted, {available} available",)
    return Verdict(
        failure="engine_budget",
        second="bug" if paged else None,
        confidence="high" if not paged else "medium",
        rule="the engine's token pool could not serve the batch"
        + (": enough tokens, but not in whole pages" if paged else ""),
        evidence=(
            *numbers,
            "the pool is a share of the card that the engine took at start; the card itself is not asked",
        ),
        would_change=("page size 1" if paged else "fewer running requests, or a larger pool",),
        advise=("page_size", "lower_running_requests") if paged else ("lower_running_requests", "raise_mem_fraction"),
    )


def tgi_prefill(message: Message) -> Verdict:
    """TGI's warm-up: the prefill batch did not run."""
    tokens = message.bytes_of("prefill_tokens") or 0
    tiny = tokens <= _TINY_PREFILL_TOKENS
    note = f"{tokens} prefill tokens are few: the weights leave no room, or the warm-up hides another error"
    return Verdict(
        failure="engine_budget",
        second="device_full" if tiny else None,
        confidence="medium",
        rule="the engine's warm-up refuses its token budget",
        evidence=(note if tiny else f"a prefill of {tokens} tokens did not run in what the weights leave",),
        would_change=("the error above it in the log: warm-up swallows any exception",),
        advise=("quantize_or_split", "look_further") if tiny else ("lower_prefill_tokens", "quantize_or_split"),
        derived={"prefill_tokens": tokens},
    )


HANDLERS: dict[str, Callable[[Message], Verdict]] = {
    "vllm_kv_tokens": kv_tokens,
    "vllm_kv_bytes": kv_bytes,
    "vllm_kv_bytes_cut": kv_bytes,
    "vllm_free_on_startup": free_on_startup,
    "vllm_profiling": profiling,
    "sglang_tokens": sglang_tokens,
    "tgi_prefill": tgi_prefill,
    "sglang_profiled": sglang_profiled,
    "vllm_negative_cache": negative_cache,
}
