"""Padded lengths: the fewest tiers within the bound, against an exhaustive search."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.diagnosis import bucket_lengths
from planner.diagnosis.length_tiers import parse_lengths
from planner.errors import UsageError


def test_worked_example() -> None:
    """Tiers 304 and 1000: 52 x 304 + 1000 = 16,808 padded for 100 + 200 + 50 x 300 + 1000 = 16,300 tokens: 3.0%."""
    buckets = bucket_lengths([100, 200, *[300] * 50, 1000], max_waste_percent=10)
    assert [(t.length, t.sequences) for t in buckets.tiers] == [(304, 52), (1000, 1)]
    assert (buckets.tokens, buckets.padded_tokens) == (16_300, 16_808)
    assert buckets.waste_percent == pytest.approx(100 * 508 / 16_808)
    assert buckets.one_length_waste_percent == pytest.approx(100 * (53_000 - 16_300) / 53_000)


def least_padding(lengths: list[int], tiers: int) -> int:
    distinct = sorted(set(lengths))
    best = None
    for chosen in itertools.combinations(distinct[:-1], min(tiers - 1, len(distinct) - 1)):
        ends = [*chosen, distinct[-1]]
        cost = sum(min(e for e in ends if e >= length) for length in lengths)
        best = cost if best is None else min(best, cost)
    assert best is not None
    return best


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.sampled_from([2.0, 10.0, 25.0, 60.0]))
@settings(max_examples=150, deadline=None)
def test_no_fewer_tiers_would_do_and_these_pad_least(lengths: list[int], bound: float) -> None:
    buckets = bucket_lengths(lengths, max_waste_percent=bound, multiple=1)
    assert buckets.meets_bound, "with multiple 1, a tier a length has no waste"
    assert buckets.padded_tokens == least_padding(lengths, len(buckets.tiers))
    if len(buckets.tiers) > 1:
        padded = least_padding(lengths, len(buckets.tiers) - 1)
        assert 100 * (padded - sum(lengths)) > bound * padded
    assert sum(t.sequences for t in buckets.tiers) == len(lengths)
    assert buckets.tokens == sum(lengths)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.sampled_from([1, 8, 64, 100]))
@settings(max_examples=100, deadline=None)
def test_tiers_are_multiples_and_hold_their_sequences(lengths: list[int], multiple: int) -> None:
    buckets = bucket_lengths(lengths, multiple=multiple)
    assert all(t.length % multiple == 0 for t in buckets.tiers)
    assert all(any(tier.length >= length for tier in buckets.tiers) for length in lengths)
    assert [t.length for t in buckets.tiers] == sorted({t.length for t in buckets.tiers})


def test_a_tighter_bound_never_needs_fewer_tiers() -> None:
    rnd = random.Random(0)
    lengths = [int(rnd.lognormvariate(6, 1)) + 1 for _ in range(5_000)]
    counts = [len(bucket_lengths(lengths, max_waste_percent=w).tiers) for w in (50, 20, 10, 5, 2)]
    assert counts == sorted(counts)


def test_bound_that_rounding_alone_exceeds_is_said() -> None:
    assert not bucket_lengths([5, 5, 5], max_waste_percent=10, multiple=8).meets_bound
    assert bucket_lengths([5, 5, 5], max_waste_percent=10, multiple=1).meets_bound


def test_many_lengths_in_bounded_time() -> None:
    start = time.perf_counter()
    buckets = bucket_lengths(range(1, 100_000), max_waste_percent=3)
    assert buckets.meets_bound and buckets.multiple > 8
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize(
    ("lengths", "options", "word"),
    [
        ([], {}, "no lengths"),
        ([0], {}, "length 0"),
        ([-5], {}, "length -5"),
        ([1 << 25], {}, "between 1 and"),
        ([5], {"max_waste_percent": 0}, "0 and 100"),
        ([5], {"max_waste_percent": 100}, "0 and 100"),
        ([5], {"max_waste_percent": float("nan")}, "0 and 100"),
        ([5], {"multiple": 0}, "multiple 0"),
    ],
)
def test_wrong_input_is_named(lengths: list[int], options: dict[str, float], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        bucket_lengths(lengths, **options)  # type: ignore[arg-type]


def test_lengths_as_text() -> None:
    assert parse_lengths("512, 1024\n300x2 [7]") == [512, 1024, 300, 300, 7]
    for text in ("abc", "1.5", "-3", "5x", "x5", "9" * 40, "1x9999999999", "5x6x7"):
        if text == "5x":
            assert parse_lengths(text) == [5]
            continue
        with pytest.raises(UsageError):
            parse_lengths(text)
    with pytest.raises(UsageError, match="more than"):
        parse_lengths("1x999999999")
