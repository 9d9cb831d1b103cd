"""Bytes of one matrix in each format; the arithmetic stands beside each expectation."""

from __future__ import annotations

import gguf
import pytest

from planner.errors import UnsupportedQuantization
from planner.memory.format_table import format_rows, grouped_format, plain_format, weight_format
from planner.memory.formats import BitsPerWeight, Microscaled, RowBlocks, WithCopy

N, K = 4096, 11008  # a Llama-2-7B down projection: 45,088,768 elements


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("float32", 180_355_072),  # x 4
        ("bfloat16", 90_177_536),  # x 2
        ("fp8", 45_088_772),  # + 4
        ("fp8_channel", 45_105_152),  # + 4096 x 4
        ("fp8_block", 45_099_776),  # + 32 x 86 x 4
        ("int8_channel16", 45_096_960),  # + 4096 x 2
        ("w8a16", 45_793_280),  # + 4096 x 86 x 2
        ("w4a16", 23_248_896),  # 22,544,384 + 4096 x 86 x 2
        ("w4a16_asym", 23_425_024),  # + 86 x 4096/8 x 4
        ("gptq_4bit", 23_469_056),  # + 11008 x 4 for g_idx
        ("gptq_8bit", 46_189_568),  # 45,088,768 + 704,512 + 352,256 + 44,032
        ("gptq_3bit", 17_788_928),  # 1032 words x 4 x 4096 + 704,512 + 86 x 384 x 4 + 44,032
        ("gptq_2bit", 12_108_800),  # 11,272,192 + 704,512 + 88,064 + 44,032
        ("awq_4bit", 23_425_024),  # 22,544,384 + 704,512 + 176,128
        ("bnb_int8", 45_105_152),
        ("bnb_nf4", 25_362_496),  # 22,544,384 + 704,512 x 4 + 64
        ("bnb_nf4_dq", 23_260_996),  # 22,544,384 + 704,512 + 2752 x 4 + 1092
        ("mxfp4", 23_953_408),  # 22,544,384 + 1,409,024
        ("nvfp4", 25_362_436),  # 22,544,384 + 2,818,048 + 4
        ("hqq_4bit", 25_362_432),  # 22,544,384 + 704,512 x 4
        ("hqq_3bit", 20_856_832),  # 1101 words x 4 x 4096 + 172 x 4096 x 4
        ("exl3", 22_574_592),  # 22,544,384 + 15,104 x 2
        ("Q4_K", 25_362_432),  # 4096 x 43 x 144
        ("IQ4_XS", 23_953_408),  # 4096 x 43 x 136
    ],
)
def test_bytes_of_a_matrix(name: str, expected: int) -> None:
    assert weight_format(name).bytes((N, K)) == expected


def test_input_first_and_stacks() -> None:
    awq = weight_format("awq_4bit")
    assert awq.bytes((K, N), 0) == awq.bytes((N, K), -1)
    assert awq.bytes((8, N, K)) == 8 * awq.bytes((N, K))
    assert awq.bytes((8, K, N), 1) == 8 * awq.bytes((N, K))


def test_partial_groups_and_tiles_cost_whole_ones() -> None:
    # 100 x 4 bits = 13 words; two groups of 64: 2 x 10 scales x 2 B
    assert grouped_format("w4a16", 64).bytes((10, 100)) == 13 * 4 * 10 + 40
    # 2 x 2 tiles of 128
    assert weight_format("fp8_block").bytes((129, 130)) == 129 * 130 + 16


def test_group_of_minus_one_is_a_row() -> None:
    # 22,544,384 + 4096 x 2 + 512 x 4 + 44,032
    assert grouped_format("gptq_4bit", -1).bytes((N, K)) == 22_598_656


def test_padding_of_microscaled() -> None:
    padded = Microscaled(name="p", bits=4, block=32, out_multiple=256, in_multiple=128, scale_tile=(128, 4))
    # 2880 -> 3072 rows, 2880 -> 2944 columns: 1472 B a row, 92 scales a row
    assert padded.bytes((2880, 2880)) == 3072 * (1472 + 92)


def test_ggml_sizes_are_the_reference_librarys() -> None:
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        row = format_rows().get(kind.name)
        if row is not None:
            assert isinstance(row.format, RowBlocks)
            assert (row.format.block, row.format.block_bytes) == (block, size), kind
    missing = {kind.name for kind in gguf.GGML_QUANT_SIZES} - set(format_rows())
    # integers, doubles and the two types that never appear in files
    assert missing <= {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}


def test_bits_per_weight_rounds_up() -> None:
    assert BitsPerWeight(name="exl2", millibits=4250).bytes((3, 7)) == 12  # 21 x 4.25 / 8 = 11.2


def test_a_copy_beside_the_matrix() -> None:
    assert WithCopy(name="c", stored=weight_format("fp8"), copy_element_bytes=2).bytes((10, 10)) == 104 + 200


def test_every_row_has_a_source() -> None:
    assert all(row.source and row.confidence for row in format_rows().values())


def test_unknown_names() -> None:
    with pytest.raises(UnsupportedQuantization):
        weight_format("q9")
    with pytest.raises(UnsupportedQuantization):
        plain_format("int4")
    with pytest.raises(UnsupportedQuantization):
        grouped_format("fp8", 64)
