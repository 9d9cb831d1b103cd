"""Defaults by release and card, by hand: fractions from MiB as nvidia-smi prints them, chunks, graph sizes."""

from __future__ import annotations

import pytest

from planner.engines.sglang.budget.defaults import (
    FractionInputs,
    card_defaults,
    default_fraction,
    lowered_for_vision,
    prefill_graph_sizes,
)
from planner.engines.sglang.tables.releases import parse_release
from planner.errors import UsageError


@pytest.mark.parametrize(
    ("release", "inputs", "fraction"),
    [
        # by the number of cards
        ("0.3.6", {"memory_mib": 81559, "tensor_parallel_size": 8}, 0.82),
        ("0.4.4", {"memory_mib": 23034, "tensor_parallel_size": 4}, 0.85),
        ("0.4.6", {"memory_mib": 81559}, 0.88),
        ("0.4.6", {"memory_mib": 143771}, (143771 - 13 * 1024) / 143771),
        ("0.4.6.post5", {"memory_mib": 143771}, (143771 - 18 * 1024) / 143771),
        ("0.4.7", {"memory_mib": 183359}, 0.79),
        # by the size of the card: (2.8 + 1/10) GiB, (9.5 + 8/2) GiB, (12 + 8/2) GiB, 32 GiB
        ("0.4.9", {"memory_mib": 24564}, round((24564 - 2969.6) / 24564, 3)),
        ("0.4.9", {"memory_mib": 16303}, round((16303 - 2969.6) / 16303, 3)),
        ("0.5.2", {"memory_mib": 81559, "tensor_parallel_size": 8}, round((81559 - 13824) / 81559, 3)),
        (
            "0.5.2",
            {"memory_mib": 143771, "tensor_parallel_size": 8, "speculation": "STANDALONE"},
            round((143771 - 16384 - 6144) / 143771, 3),
        ),
        # a sum of terms: 512 + 1.5 x 2048 + 2 x 8 + 128
        ("0.5.5", {"memory_mib": 16303, "chunked_prefill_size": 2048, "graph_max_batch": 8}, 0.771),
        # 512 + 1.5 x 16384 + 2 x 512 + 128 + 8 x 74 sizes
        (
            "0.5.10",
            {
                "memory_mib": 183359,
                "chunked_prefill_size": 16384,
                "graph_max_batch": 512,
                "prefill_graph_tokens": 16384,
            },
            0.854,
        ),
        # the draft is in the cost of a token from 0.5.14 on
        (
            "0.5.13",
            {"memory_mib": 81559, "graph_max_batch": 256, "speculation": "EAGLE"},
            round((81559 - (512 + 12288 + 512 + 128) - 4096) / 81559, 3),
        ),
        (
            "0.5.15",
            {"memory_mib": 81559, "graph_max_batch": 256, "speculation": "EAGLE"},
            round((81559 - (512 + 12288 + 512 + 128)) / 81559, 3),
        ),
        # a decode node reserves by running requests, with at least 2048 tokens: 512 + 3072 + 512 + 128 is below 10 GiB
        (
            "0.5.15",
            {"memory_mib": 81559, "graph_max_batch": 256, "role": "decode", "max_running_requests": 64},
            round((81559 - 10240) / 81559, 3),
        ),
    ],
)
def test_fraction_by_hand(release: str, inputs: dict[str, int], fraction: float) -> None:
    found, formula = default_fraction(parse_release(release), FractionInputs(**inputs))  # type: ignore[arg-type]
    assert found == pytest.approx(fraction, abs=1e-9), formula


def test_a_vision_tower_lowers_the_default_and_in_old_releases_a_given_fraction_too() -> None:
    # Kimi-K2.5's tower: 27 layers of 1152, 27 x 1152^2 / (24 x 1024^2) = 1.4238
    factor = 0.95 * (1 - 0.1 * 0.423828125)
    for release in ("0.4.10.post2", "0.5.9", "0.5.23"):
        assert lowered_for_vision(parse_release(release), 0.908, (27, 1152), given=False) == pytest.approx(
            0.908 * factor, abs=1e-6
        )
        assert lowered_for_vision(parse_release(release), 0.9, (27, 1152), given=True) == 0.9
    assert lowered_for_vision(parse_release("0.4.4"), 0.88, (27, 1152), given=True) == pytest.approx(0.88 * 0.95)
    assert lowered_for_vision(parse_release("0.4.7"), 0.88, (27, 1152), given=True) == pytest.approx(0.88 * 0.9)


@pytest.mark.parametrize(
    ("release", "memory_mib", "tensor", "chunk", "graphs"),
    [
        ("0.4.4", 24564, 1, 2048, 8),
        ("0.4.4", 24564, 4, 2048, 80),
        ("0.5.4", 24564, 1, 2048, 16),
        ("0.5.19", 24564, 1, 2048, 24),
        ("0.5.20", 24564, 1, 4096, 48),
        ("0.5.20", 24564, 8, 4096, 160),
        ("0.5.9", 81559, 2, 8192, 256),
        ("0.5.9", 143771, 8, 8192, 512),
        ("0.5.9", 294891, 1, 16384, 512),
    ],
)
def test_chunk_and_graphs(release: str, memory_mib: int, tensor: int, chunk: int, graphs: int) -> None:
    found = card_defaults(parse_release(release), memory_mib, tensor)
    assert (found.chunked_prefill_size, found.graph_max_batch) == (chunk, graphs)


def test_prefill_sizes_have_a_gap_up_to_0_5_9() -> None:
    # 4..32 by 4, 48..256 by 16, 288..512 by 32, then 576 (640 before 0.5.10)..1024 by 64, ..4096 by 256, by 512
    assert prefill_graph_sizes(parse_release("0.5.15"), 16384) == 8 + 14 + 8 + 8 + 12 + 24
    assert prefill_graph_sizes(parse_release("0.5.9"), 16384) == 8 + 14 + 8 + 7 + 12 + 24


def test_releases_are_read_as_they_are_written() -> None:
    assert parse_release("0.4.9.post2") == (0, 4, 9, 2)
    assert parse_release("v0.5.23") == (0, 5, 23, 0)
    assert parse_release("0.5.17.dev20260819") == (0, 5, 17, 0)
    for text in ("newest", "0.2.0", "", "0.5.x"):
        with pytest.raises(UsageError):
            parse_release(text)
