"""The cache that TensorRT-LLM makes of what is left, in blocks.

    engines    bytes = fraction x free, free read after weights, execution context, runtime buffers and decoder
    PyTorch    bytes = fraction x (total - peak + temporary cache), peak = torch's and everything outside torch,
               in a dry run of max_num_tokens tokens
    blocks     ceil(tokens / tokens_per_block) up to 0.21; whole blocks of the bytes from 1.0 on

The fraction is of what is left: weights never count against it. max_seq_len does not cap the pool; max_tokens does.

Source: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp calculateMaxNumBlocks (0.15 to 1.2);
_torch/pyexecutor/_util.py _cal_max_memory (0.17 to 1.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines.tensorrt_llm.tables.releases import Release, rules_at


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPool:
    """The pool of one card.

    Args:
        budget_bytes: the fraction of what is left.
        blocks, tokens: as the engine prints them; bytes: what they take.
        capped_by: "" or "max_tokens" or "max_gpu_total_bytes".
    """

    budget_bytes: int
    blocks: int
    tokens: int
    bytes: int
    capped_by: str


def left_after_dry_run(total_bytes: int, peak_bytes: int, temporary_bytes: int, release: Release) -> int:
    """What the PyTorch back end takes its fraction of."""
    returned = temporary_bytes if rules_at(release)["temporary_cache"] == "yes" else 0
    return total_bytes - peak_bytes + returned


def block_pool(
    left_bytes: int,
    *,
    fraction: float,
    bytes_per_token: int,
    tokens_per_block: int,
    release: Release,
    max_tokens: int | None = None,
    max_gpu_total_bytes: int | None = None,
) -> BlockPool:
    """The blocks that a fraction of the bytes left makes.

    Args:
        max_tokens, max_gpu_total_bytes: further limits; the smallest counts.
    """
    rules = rules_at(release)
    budget, capped_by = max(0, int(left_bytes * fraction)), ""
    if max_gpu_total_bytes is not None and rules["total_cap"] == "yes" and max_gpu_total_bytes < budget:
        budget, capped_by = max_gpu_total_bytes, "max_gpu_total_bytes"
    if not bytes_per_token:
        return BlockPool(budget_bytes=budget, blocks=0, tokens=0, bytes=0, capped_by=capped_by)
    tokens = budget // bytes_per_token
    if max_tokens is not None and max_tokens < tokens:
        tokens, capped_by = max_tokens, "max_tokens"
    up = rules["block_rounding"] == "up" or capped_by == "max_tokens"
    blocks = -(-tokens // tokens_per_block) if up else tokens // tokens_per_block
    held = blocks * tokens_per_block
    return BlockPool(budget_bytes=budget, blocks=blocks, tokens=held, bytes=held * bytes_per_token, capped_by=capped_by)
