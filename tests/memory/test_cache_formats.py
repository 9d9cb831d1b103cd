"""Bytes of one token slot in one layer; the arithmetic stands beside each expectation."""

from __future__ import annotations

import pytest

from planner.errors import UnsupportedQuantization
from planner.memory.cache.formats import cache_format, cache_formats
from planner.model.caches import CompressedCache, CrossCache, IndexerCache, KeyValueCache, LatentCache

GQA = KeyValueCache(num_key_value_heads=8, key_head_dim=128, value_head_dim=128)
MLA = LatentCache(kv_lora_rank=512, qk_rope_head_dim=64)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", 4096),  # 8 x (128 + 128) x 2
        ("float32", 8192),  # 8 x 256 x 4
        ("fp8", 2048),  # 8 x 256 x 1
        ("fp8_e5m2", 2048),
        ("int8_per_token_head", 2112),  # 8 x (256 + 8)
        ("fp8_per_token_head", 2112),
        ("int4_per_token_head", 1088),  # 8 x (128 + 8)
        ("nvfp4", 1152),  # 8 x 2 x (64 + 8)
        ("turboquant_k8v4", 1568),  # 8 x (128 + 64 + 4)
        ("turboquant_4bit_nc", 1072),  # 8 x (64 + 2 + 64 + 4)
        ("turboquant_k3v4_nc", 944),  # 8 x (48 + 2 + 64 + 4)
        ("turboquant_3bit_nc", 816),  # 8 x (48 + 2 + 48 + 4)
        ("q8_0", 2176),  # 8 x 2 x 4 blocks x 34
        ("q4_0", 1152),  # 8 x 2 x 4 x 18
        ("q5_1", 1536),  # 8 x 2 x 4 x 24
        ("exl2_q6", 1664),  # 8 x 4 x (34 + 18)
        ("hf_int4", 1152),  # 8 x 2 x 2 blocks of 64 x 36
    ],
)
def test_keys_and_values(name: str, expected: int) -> None:
    assert cache_format(name, "bfloat16").slot_bytes(GQA, 8) == expected


def test_turboquant_is_padded_to_even() -> None:
    odd = KeyValueCache(num_key_value_heads=1, key_head_dim=72, value_head_dim=72)
    # keys 72/8 x 3 + 2 = 29, values 72/8 x 4 + 4 = 40: 69, padded to 70
    assert cache_format("turboquant_k3v4_nc", None).slot_bytes(odd, 1) == 70


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", 1152),  # 576 x 2
        ("fp8", 576),
        ("fp8_ds_mla", 656),  # 512 + 4 x 4 + 64 x 2
        ("nvfp4_ds_mla", 352),  # 256 + 32 + 64
        ("q8_0", 612),  # 576/32 x 34
    ],
)
def test_latent(name: str, expected: int) -> None:
    assert cache_format(name, "bfloat16").slot_bytes(MLA, 1) == expected


def test_indexer_takes_no_notice_of_the_format() -> None:
    indexer = IndexerCache(index_head_dim=128)
    sizes = {cache_format(name, None).slot_bytes(indexer, 1) for name in ("auto", "fp8", "fp8_ds_mla")}
    assert sizes == {132}  # 128 + one fp32 scale


def test_compressed() -> None:
    compressed = CompressedCache(width=512, compress_ratio=4)
    assert cache_format("auto", "bfloat16").slot_bytes(compressed, 1) == 1024
    assert cache_format("fp8_ds_mla", None).slot_bytes(compressed, 1) == 584  # 448 + 128 + 8


def test_unequal_heads_and_cross_attention() -> None:
    cross = CrossCache(num_key_value_heads=20, key_head_dim=64, value_head_dim=32, source_tokens=1500)
    assert cache_format("auto", "float16").slot_bytes(cross, 20) == 20 * (64 + 32) * 2


def test_auto_follows_the_computing_type_only() -> None:
    assert [cache_format("auto", dtype).name for dtype in ("float16", "float32", None)] == [
        "float16",
        "float32",
        "bfloat16",
    ]


@pytest.mark.parametrize(("name", "cache"), [("nvfp4", MLA), ("turboquant_k8v4", MLA), ("fp8_ds_mla", GQA)])
def test_what_a_format_cannot_store(name: str, cache: KeyValueCache | LatentCache) -> None:
    with pytest.raises(UnsupportedQuantization, match=name):
        cache_format(name, None).slot_bytes(cache, 1)


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnsupportedQuantization, match="fp8_e4m3"):
        cache_format("fp9", None)


def test_every_row_has_a_source() -> None:
    assert all(entry.source and entry.confidence for entry in cache_formats().values())
