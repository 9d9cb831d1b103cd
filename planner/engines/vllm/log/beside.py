"""The figures that a start of vLLM printed beside the plan's.

Two questions are kept apart: what the plan says from the command line alone, and what it says of the cache layout when
the printed KV memory is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from planner.contract.start_log import COMMAND_LINE, Compared
from planner.engines.vllm.plan import VllmPlan
from planner.units import GIB

GIVEN_KV: Final = "given KV memory"
# KV memory below this is dominated by the rounding of the printed figure
_SMALLEST_KV_GIB: Final = 0.5


def beside(
    plan: VllmPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
) -> tuple[list[Compared], list[tuple[str, str]]]:
    """What the plan says of printed figures, and (mode, reason) for what cannot be compared.

    Args:
        measured: figures under the names of measured cases.
        unknown: inputs that the plan stands on and nobody stated.
    """
    left: list[tuple[str, str]] = []
    found = list(_command_line(plan, measured, unknown, left))
    found += _given_kv(plan, measured, unknown, left)
    return [one for one in found if one.measured > 0 or one.figure == "kv_cache"], left


def _command_line(
    plan: VllmPlan, measured: Mapping[str, float], unknown: Sequence[str], left: list[tuple[str, str]]
) -> Iterator[Compared]:
    one_stage = plan.deployment.pipeline_parallel_size == 1
    if one_stage and "weights_gib" in measured:
        # weights depend on neither the card nor, but for layout rules, the version
        weights = plan.budget.component("weights")
        adapters = next((part for part in plan.budget.inside if part.name == "lora_adapters"), None)
        assert weights is not None
        size = weights.best + (adapters.best if adapters else 0)
        yield Compared(figure="weights", planned=size / GIB, measured=measured["weights_gib"])
    if unknown:
        left.append((COMMAND_LINE, f"not known: {', '.join(unknown)}"))
        return
    for name in ("activation_peak", "non_torch") if one_stage else ():
        component = plan.budget.component(name)
        if component is not None and f"{name}_gib" in measured:
            extra = _printed_with(plan) if name == "activation_peak" else 0
            yield Compared(figure=name, planned=(component.best + extra) / GIB, measured=measured[f"{name}_gib"])
    if plan.deployment.kv_cache_memory_bytes is None and "kv_cache_gib" in measured:
        planned = plan.budget.available("best") / GIB
        yield Compared(figure="kv_cache", planned=planned, measured=measured["kv_cache_gib"])
    if "max_concurrency" in measured and _of_this_length(plan, measured):
        yield Compared(
            figure="concurrency", planned=plan.max_concurrency, measured=measured["max_concurrency"], unit="x"
        )


def _of_this_length(plan: VllmPlan, measured: Mapping[str, float]) -> bool:
    """The printed concurrency is of requests as long as the plan's."""
    return measured.get("max_concurrency_len") in (None, plan.resolved.max_model_len)


def _printed_with(plan: VllmPlan) -> int:
    """From 0.28 the printed activation peak holds the graph estimate (gpu_worker.py determine_available_memory)."""
    if plan.resolved.profile.accounting != "consumed":
        return 0
    return sum(part.best for part in plan.budget.inside if part.name == "cuda_graphs")


def _given_kv(
    plan: VllmPlan, measured: Mapping[str, float], unknown: Sequence[str], left: list[tuple[str, str]]
) -> Iterator[Compared]:
    printed = measured.get("kv_cache_gib")
    if plan.deployment.pipeline_parallel_size > 1:
        left.append((GIVEN_KV, "pipeline stages print figures of different ranks"))
        yield from _needs(plan, measured)
        return
    if "draft model" in unknown:
        left.append((GIVEN_KV, "the draft model's layers are not known"))
        return
    if printed is not None and printed > _SMALLEST_KV_GIB:
        pool = plan.pool
        blocks = plan.deployment.num_gpu_blocks_override or pool.num_blocks(round(printed * GIB))
        # the same pool in tokens or in blocks, as the release prints it
        if measured.get("kv_tokens", 0) > 0:
            yield _given("tokens", pool.tokens(blocks), measured["kv_tokens"], "tokens")
        elif "num_gpu_blocks" in measured:
            yield _given("tokens", blocks, measured["num_gpu_blocks"], "blocks")
        if "max_concurrency" in measured and _of_this_length(plan, measured):
            yield _given("concurrency given KV", pool.max_concurrency(blocks), measured["max_concurrency"], "x")
    yield from _needs(plan, measured)


def _needs(plan: VllmPlan, measured: Mapping[str, float]) -> Iterator[Compared]:
    """What a refusal states: bytes for one request, and the longest request that would fit."""
    needed, printed = measured.get("needed_kv_gib_for_one_request"), measured.get("kv_cache_gib")
    if needed is not None:
        yield _given("needed for one request", plan.needed_bytes / GIB, needed, "GiB")
    if printed is not None and printed > 0 and "estimated_max_len" in measured:
        longest = plan.check_pool.longest_length(round(printed * GIB), ceiling=plan.resolved.max_model_len)
        yield _given("estimated maximum length", longest, measured["estimated_max_len"], "tokens")


def _given(figure: str, planned: float, measured: float, unit: str) -> Compared:
    return Compared(figure=figure, planned=planned, measured=measured, unit=unit, mode=GIVEN_KV)
