"""The figures that a start of TensorRT-LLM printed beside the plan's: pool from the printed free memory, and alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from planner.contract.start_log import COMMAND_LINE, GIVEN_MEMORY, Compared
from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan
from planner.engines.tensorrt_llm.pool import block_pool, left_after_dry_run
from planner.engines.tensorrt_llm.tables.releases import Release, rules_at
from planner.units import GIB

Figures = Mapping[str, float]
DEFAULT_FRACTION: Final = 0.9  # llmapi/llm_args.py KvCacheConfig


def from_given_memory(
    measured: Figures, *, release: Release, fraction: float, total_gib: float | None, tokens_per_block: int | None
) -> Iterator[Compared]:
    """The budget and the blocks from the printed free memory.

    Args:
        fraction: --kv-cache-free-gpu-memory-fraction.
        total_gib: memory of the card, where the log does not print it.
        tokens_per_block: None: the release's own.
    """
    free, peak = measured.get("free_at_kv_gib"), measured.get("peak_profiling_gib")
    total = measured.get("gpu_memory_gib") or total_gib
    budget = measured.get("kv_budget_gib") or measured.get("kv_size_gib")
    if budget is None:
        return
    if free is not None:
        left = round(free * GIB)
    elif peak is not None and total is not None:
        temporary = round((measured.get("temporary_kv_gib") or 0) * GIB)
        left = left_after_dry_run(round(total * GIB), round(peak * GIB), temporary, release)
    else:
        return
    cell = _printed_cell(measured)
    pool = block_pool(
        left,
        fraction=fraction,
        bytes_per_token=cell,
        tokens_per_block=tokens_per_block or int(rules_at(release)["tokens_per_block"]),
        release=release,
    )
    yield Compared(figure="pool", planned=pool.budget_bytes / GIB, measured=budget, mode=GIVEN_MEMORY)
    blocks = measured.get("num_blocks")
    if blocks and cell:
        yield Compared(figure="blocks", planned=pool.blocks, measured=blocks, unit="blocks", mode=GIVEN_MEMORY)


def _printed_cell(measured: Figures) -> int:
    """Bytes of a token where they are printed or follow from the pool; 0 where they do not."""
    printed = measured.get("kv_bytes_per_token")
    if printed:
        return int(printed)
    size, tokens = measured.get("kv_size_gib"), measured.get("kv_tokens")
    if not size or not tokens or size < 1:
        return 0
    # a cell is a whole number of KiB
    return max(1024, round(size * GIB / tokens / 1024) * 1024)


def from_command_line(plan: TensorrtLlmPlan, measured: Figures) -> Iterator[Compared]:
    """What the plan says from the command line alone."""
    tokens, size = measured.get("kv_tokens"), measured.get("kv_size_gib")
    if tokens and plan.cache.tokens is not None:
        yield Compared(figure="tokens", planned=plan.cache.tokens, measured=tokens, unit="tokens")
    if size:
        yield Compared(figure="pool", planned=plan.cache.reserved_bytes / GIB, measured=size)


def beside(
    plan: TensorrtLlmPlan, measured: Figures, unknown: Sequence[str] = ()
) -> tuple[list[Compared], list[tuple[str, str]]]:
    """What the plan says of printed figures, and (mode, reason) for what cannot be compared.

    Args:
        measured: figures under the names of measured cases.
        unknown: inputs that the plan stands on and nobody stated.
    """
    found = list(
        from_given_memory(
            measured,
            release=plan.resolved.release,
            fraction=plan.deployment.fraction,
            total_gib=None,
            tokens_per_block=plan.resolved.tokens_per_block,
        )
    )
    left = [] if found else [(GIVEN_MEMORY, "prints no free memory before its cache")]
    if unknown:
        return found, [*left, (COMMAND_LINE, f"not known: {', '.join(unknown)}")]
    return [*found, *from_command_line(plan, measured)], left
