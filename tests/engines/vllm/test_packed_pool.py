"""DeepSeek-V4's pool by version: hand arithmetic, and two printed starts.

Flash has 43 layers: 2 windows alone, 21 with ratio 4, 20 with ratio 128. Pages, blocks of 256 tokens, 576-byte units:

    ratio 4     64 x 584 = 37,376 -> 37,440      indexer  64 x 132 = 8,448 -> 8,640
    ratio 128    2 x 584 =  1,168 ->  1,728      window   64 x 584 -> 37,440
    held by compressors: 4 x 2,048 x 4 = 32,768 -> 32,832 (ratio 4), 4 x 512 x 4 = 8,192 -> 8,640 (indexer),
                         8 x 1,024 x 4 -> 32,832 (ratio 128)

Runs of 21, 43, 21 and 20 layers fit groups of 22 with least padding (1 + 1 + 1 + 2), so windows make two groups.
"""

from __future__ import annotations

import pytest

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.pool.pool import Pool
from planner.engines.vllm.resolve import resolve
from planner.engines.vllm.stages import cache_format_of, pool_of
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.units import GIB


def flash_pool(version: str, length: int, *, cache: str = "fp8") -> Pool:
    model = load_model("deepseek-ai/DeepSeek-V4-Flash")
    deployment = Deployment(
        gpu=find_gpu("H200"), engine_version=version, max_model_len=length, max_num_batched_tokens=8192
    )
    resolved = resolve(model, deployment)
    form = cache_format_of(model, cache, resolved.dtype)
    return pool_of(model, resolved, form, slice(0, len(model.spec.layers)))[0]


@pytest.mark.parametrize(
    ("version", "block_bytes"),
    [
        ("0.20.0", 22 * (37_440 + 8_640 + 1_728)),
        ("0.22.1", 22 * (37_440 + 8_640 + 1_728)),
        ("0.24.0", 22 * 37_440 + 21 * 8_640 + 20 * 1_728),
        ("0.28.0", 21 * 37_440 + 21 * 8_640 + 20 * 1_728),
        ("0.33.0", 21 * 37_440 + 21 * 8_640 + 20 * 1_728),
    ],
)
def test_bytes_per_block_by_version(version: str, block_bytes: int) -> None:
    assert flash_pool(version, 262_144).bytes_per_block == block_bytes


@pytest.mark.parametrize(
    ("version", "printed_gib", "blocks", "length", "tokens", "concurrency"),
    [
        ("0.22.1", 37.93, 38_724, 256_000, 2_497_693, 9.76),
        ("0.24.0", 32.08, 33_134, 262_144, 2_175_276, 8.30),
    ],
)
def test_printed_starts_to_the_token(
    version: str, printed_gib: float, blocks: int, length: int, tokens: int, concurrency: float
) -> None:
    """The block count lies within the rounding of the printed memory, and gives the printed tokens exactly."""
    pool = flash_pool(version, length)
    low, high = (pool.num_blocks(round((printed_gib + side) * GIB)) for side in (-0.005, 0.005))
    assert low <= blocks <= high
    assert pool.tokens(blocks) == tokens
    assert round(pool.max_concurrency(blocks), 2) == concurrency


def test_blocks_of_a_request_weighted_by_the_groups_bytes() -> None:
    """0.24: 1,024 compressed blocks, 2 x 131 of windows, 2,051 and 1,041 of what compressors hold.

    Of 1,002,240 B: (262 halves of 823,680 and 786,240) + 2,051 x 967,680 + 1,041 x 748,800.
    """
    first = 21 * 37_440 + 21 * 8_640 + 20 * 1_728
    pages = 1_024 * first + 131 * (22 + 21) * 37_440 + 2_051 * 21 * (37_440 + 8_640) + 1_041 * 20 * 37_440
    assert flash_pool("0.24.0", 262_144).blocks_for(262_144) == -(-pages // first) == 3_993


def test_blocks_of_a_request_from_0_28() -> None:
    """Whole blocks of every group, windows with two batches in flight: 1,024 + 2 x 259 + 4,099 + 2,065."""
    assert flash_pool("0.28.0", 262_144).blocks_for(262_144) == 7_706


def test_capacity_check_counts_tuples_before_0_30() -> None:
    ids = 1_024 + 2 * 131 + 2_051 + 1_041
    assert flash_pool("0.24.0", 262_144).needed_bytes(262_144) == ids * 22 * (37_440 + 8_640 + 1_728)


def test_sixteen_bit_rows_are_not_padded_in_0_24() -> None:
    """64 x 512 x 2 = 65,536 and 2 x 512 x 2 = 2,048; the indexer keeps its 576-byte units."""
    pool = flash_pool("0.24.0", 262_144, cache="bfloat16")
    assert pool.bytes_per_block == 22 * 65_536 + 21 * 8_640 + 20 * 2_048


def test_no_such_model_before_0_20() -> None:
    with pytest.raises(UsageError, match=r"0\.20"):
        flash_pool("0.19.0", 8_192)
