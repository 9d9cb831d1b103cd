"""Bytes of a token, of a state, and how a budget becomes pools: by hand, from geometry and the engine's formulas."""

from __future__ import annotations

import pytest

from planner.engines.sglang.pool.cells import cell_of
from planner.engines.sglang.pool.compressed import compressed_layers, full_token_bytes
from planner.engines.sglang.pool.pools import PoolInputs, make_pools
from planner.engines.sglang.pool.states import StateWish, slot_bytes, state_pool
from planner.engines.sglang.pool.windows import request_cap, split_by_ratio, windowed_cell
from planner.engines.sglang.tables.releases import parse_release
from planner.errors import UsageError
from planner.memory.cache.formats import cache_format
from planner.model.load import load_model
from planner.units import GIB, MIB

NEW, OLD = parse_release("0.5.23"), parse_release("0.5.9")


def cell(name: str, dtype: str, *, release=NEW, tensor: int = 1, backend: str = "") -> tuple[int, int]:  # type: ignore[no-untyped-def]
    model = load_model(name)
    found = cell_of(
        model.spec.layers,
        cache_format(dtype, "bfloat16"),
        release=release,
        attention_parallel_size=tensor,
        recurrent=model.is_recurrent,
        sparse_backend=backend,
    )
    return found.sized_bytes, found.allocated_bytes


@pytest.mark.parametrize(
    ("name", "dtype", "tensor", "size"),
    [
        ("Qwen/Qwen3-0.6B", "bfloat16", 1, 28 * 8 * (128 + 128) * 2),
        ("Qwen/QwQ-32B", "bfloat16", 4, 64 * 2 * 256 * 2),
        ("Qwen/QwQ-32B", "bfloat16", 16, 64 * 1 * 256 * 2),  # heads are copied where there are more cards
        ("deepseek-ai/DeepSeek-R1", "bfloat16", 8, 61 * 576 * 2),  # a latent is whole on every card
        ("deepseek-ai/DeepSeek-R1", "fp8_e4m3", 8, 61 * 576),
        ("Qwen/Qwen3.6-27B", "bfloat16", 1, 16 * 4 * 512 * 2),  # a quarter of the layers attend
        ("Qwen/Qwen3-0.6B", "fp4_e2m1", 1, 28 * 8 * 256 * 9 // 16),
        ("Qwen/Qwen3-0.6B", "mxfp8", 1, 28 * 8 * 256 * 33 // 32),
    ],
)
def test_token_bytes(name: str, dtype: str, tensor: int, size: int) -> None:
    assert cell(name, dtype, tensor=tensor) == (size, size)


def test_the_pool_that_is_larger_than_it_was_sized() -> None:
    raw, scaled, key = 576, 512 + 4 * 4 + 64 * 2, 128 + 4
    # GLM-5 on AMD in 0.5.9: profiled 55,224 B a token, allocated 61,464 B
    assert cell("zai-org/GLM-5", "fp8_e4m3", release=OLD, backend="hip/tilelang") == (
        78 * (raw + key),
        78 * (scaled + key),
    )
    assert cell("deepseek-ai/DeepSeek-V3.2", "fp8_e4m3", release=parse_release("0.5.16"), backend="flashmla_kv") == (
        61 * (raw + key),
        61 * (scaled + key),
    )
    # mended in 0.5.17; raw rows where the kernels take them; nothing of it in 16 bit
    assert cell("zai-org/GLM-5", "fp8_e4m3", backend="flashmla_kv") == (78 * (scaled + key),) * 2
    assert cell("zai-org/GLM-5", "fp8_e4m3", backend="hip/tilelang") == (78 * (raw + key),) * 2
    assert cell("zai-org/GLM-5", "fp8_e4m3", release=OLD, backend="trtllm") == (78 * (raw + key),) * 2
    assert cell("zai-org/GLM-5", "bfloat16", release=OLD, backend="flashmla_kv") == (78 * (2 * raw + key),) * 2


def test_only_layers_with_an_indexer_of_their_own_pay_for_it_from_0_5_19() -> None:
    name = "nvidia/GLM-5.2-NVFP4"
    assert cell(name, "fp8_e4m3", backend="trtllm") == (78 * 576 + 21 * 132,) * 2
    assert cell(name, "fp8_e4m3", release=parse_release("0.5.17"), backend="trtllm") == (78 * (576 + 132),) * 2


def test_deepseek_v4_token() -> None:
    layers = compressed_layers(load_model("deepseek-ai/DeepSeek-V4-Flash").spec)
    assert float(full_token_bytes(layers, window_ratio=0.1, speculative=False)) == pytest.approx(15955.85, abs=0.005)


@pytest.mark.parametrize(
    ("name", "tensor", "dtype", "size"),
    [
        ("ibm-granite/granite-4.0-h-micro", 1, None, 36 * (3 * (4096 + 2 * 128) * 2 + 64 * 64 * 128 * 4)),
        ("Qwen/Qwen3.6-27B", 1, "bfloat16", 48 * (3 * (2 * 16 * 128 + 48 * 128) * 2 + 48 * 128 * 128 * 2)),
        ("Qwen/Qwen3.6-27B", 2, None, 48 * (3 * (2 * 16 * 128 + 48 * 128) + 24 * 128 * 128 * 4)),
    ],
)
def test_slot_bytes(name: str, tensor: int, dtype: str | None, size: int) -> None:
    model = load_model(name)
    assert sum(slot_bytes(model.spec.layers, release=OLD, parallel_size=tensor, dtype=dtype)) == size


def wish(**more: object) -> StateWish:
    given: dict[str, object] = {
        "max_mamba_cache_size": None, "max_running_requests": None, "ratio": 0.9, "radix_cache": True,
        "per_request": 3, "draft_tokens": 0,
    }  # fmt: skip
    return StateWish(**given | more)  # type: ignore[arg-type]


def test_slots_by_release() -> None:
    rest, slot = 19 * GIB, 90 * MIB  # a budget of 9 GiB: 102.4 slots
    assert state_pool(rest, slot, wish(), OLD).slots == 102
    assert state_pool(rest, slot, wish(), NEW).slots == 101  # the padding slot comes off first
    assert state_pool(rest, slot, wish(draft_tokens=3), parse_release("0.5.5")).slots == 25  # 102 // (1 + 3)
    # 0.5.9: 8 requests x 3 states first, then 0.9/1.9 of the rest
    states = 8 * 3 * slot
    found = state_pool(rest, slot, wish(draft_tokens=3, max_running_requests=8), OLD)
    assert found.slots == int((rest - states) * 0.9 / 1.9 // slot)
    assert found.charged_bytes == states + found.slots * slot
    # 0.5.14: budget / (slot x (1 + D / k))
    found = state_pool(rest, slot, wish(draft_tokens=3, max_running_requests=48), parse_release("0.5.14"))
    assert (found.slots, found.draft_states) == (51, 17 * 3)
    # asked for: just that much, whatever the ratio
    assert state_pool(rest, slot, wish(max_mamba_cache_size=10), NEW).charged_bytes == 11 * slot
    assert state_pool(rest, slot, wish(max_running_requests=8, radix_cache=False), NEW).slots == 8


def test_windows_are_split_by_ratio_and_counted_twice_before_0_5_9() -> None:
    layers = load_model("openai/gpt-oss-20b").spec.layers  # 12 full and 12 windowed layers, 8 heads of 64
    found = windowed_cell(layers, cache_format("bfloat16", "bfloat16"), 1)
    assert found is not None
    each = 8 * 128 * 2
    assert (found.full_layers, found.windowed_layers, found.full_bytes, found.window) == (12, 12, each, 128)
    rest = 10 * GIB
    full, windows = split_by_ratio(rest, found, ratio=0.8, page_size=1, counts_tokens=False)
    assert full == int(rest / (12 * each * 1.8)) and windows == int(full * 0.8)
    older, _ = split_by_ratio(rest, found, ratio=0.8, page_size=1, counts_tokens=True)
    assert older == int(rest // (24 * each) * 24 / (12 * 1.8))
    # 100 requests of 128 + 128 + 1 and a page each, two chunks in flight, one page
    assert request_cap(window=128, page_size=1, requests=100, chunked_prefill_size=8192, overlap=True) == (
        100 * 258 + 2 * 8192 + 1
    )


def test_a_pool_is_capped_aligned_and_padded_by_one_page() -> None:
    model = load_model("Qwen/Qwen3-0.6B")
    one = cell_of(
        model.spec.layers, cache_format("auto", "bfloat16"), release=NEW, attention_parallel_size=1, recurrent=False
    )
    inputs = PoolInputs(release=NEW, cell=one, page_size=64, max_total_tokens=10_000, context_length=4096)
    pools = make_pools(10 * GIB, inputs)
    assert (pools.tokens, pools.capped) == (9_984, True)
    assert pools.allocated_bytes == (9_984 + 64) * 114_688
    assert make_pools(-GIB, inputs).total_bytes == 0


def test_heads_that_do_not_divide_are_named() -> None:
    with pytest.raises(UsageError, match="key-value heads"):
        cell("Qwen/Qwen3-0.6B", "bfloat16", tensor=3)
