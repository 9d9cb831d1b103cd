"""The caching allocator replayed: hand-made sequences, and laws over plans."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.contract.parser import parse
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.training.allocator.caching import CachingAllocator
from planner.training.plan import plan_training
from planner.training.recipe import Recipe
from planner.units import MIB


@pytest.mark.parametrize(("requests", "allocated", "reserved"), [
    ((1,), 512, 2 * MIB),
    ((MIB, MIB), 2 * MIB, 2 * MIB),
    ((MIB + 1,), MIB + 512, 20 * MIB),
    ((9 * MIB, 9 * MIB), 18 * MIB, 20 * MIB),
    ((11 * MIB,), 12 * MIB, 12 * MIB),  # what is left over is not more than 1 MiB, and is not cut off
    ((259 * MIB,), 260 * MIB, 260 * MIB),
])  # fmt: skip
def test_segments_by_size(requests: tuple[int, ...], allocated: int, reserved: int) -> None:
    memory = CachingAllocator()
    for size in requests:
        memory.allocate(size)
    assert (memory.allocated, memory.reserved) == (allocated, reserved)


def test_the_smallest_free_block_is_taken_and_cut() -> None:
    memory = CachingAllocator()
    large, middle = memory.allocate(100 * MIB), memory.allocate(40 * MIB)
    memory.release(large)
    memory.release(middle)
    memory.allocate(30 * MIB)  # from the 40
    memory.allocate(90 * MIB)  # from the 100
    assert memory.reserved == 140 * MIB
    memory.allocate(40 * MIB)  # 10 and 10 are left, apart
    assert memory.reserved == 180 * MIB


def test_neighbours_join_and_streams_do_not_share() -> None:
    memory = CachingAllocator()
    first = memory.allocate(100 * MIB)
    memory.release(first)
    halves = [memory.allocate(50 * MIB), memory.allocate(50 * MIB)]
    for block in halves:
        memory.release(block)
    memory.allocate(100 * MIB)
    assert memory.reserved == 100 * MIB
    memory.allocate(10 * MIB, stream=1)
    assert memory.reserved == 110 * MIB


def test_free_segments_go_back_before_a_request_fails() -> None:
    memory = CachingAllocator(limit=150 * MIB)
    memory.release(memory.allocate(100 * MIB))
    memory.allocate(120 * MIB)
    assert (memory.reserved, memory.peak_reserved) == (120 * MIB, 120 * MIB)


def test_a_block_goes_when_all_that_hold_it_let_go() -> None:
    memory = CachingAllocator()
    block = memory.allocate(MIB)
    block.references += 1
    memory.release(block)
    assert memory.allocated == MIB
    memory.release(block)
    assert memory.allocated == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans()), max_size=60))
def test_nothing_is_lost(steps: list[tuple[int, bool]]) -> None:
    memory = CachingAllocator()
    live = []
    for size, frees in steps:
        live.append(memory.allocate(size))
        if frees:
            memory.release(live.pop(0))
        assert memory.allocated == sum(block.size for block in live) <= memory.reserved
    for block in live:
        memory.release(block)
    memory.give_back()
    assert (memory.allocated, memory.reserved) == (0, 0)


@pytest.mark.parametrize("options", [
    {"method": "lora"}, {"method": "full", "gradient_checkpointing": True}, {"method": "full", "loss": "liger"},
    {"method": "lora", "num_gpus": 4, "sharding": "fsdp", "gradient_checkpointing": True},
])  # fmt: skip
def test_the_replay_allocates_what_the_plan_does(options: dict[str, object]) -> None:
    """Two ways to one number: the walk over profiles, and the requests one by one."""
    plan = plan_training(load_model("Qwen/Qwen2.5-0.5B"), Recipe(**options), find_gpu("H100"))  # type: ignore[arg-type]
    assert plan.memory is not None and plan.memory.derived
    assert 0.97 * plan.allocated_bytes <= plan.memory.reserved.best <= 1.6 * plan.allocated_bytes
    memory = plan.memory
    assert memory.reserved.low <= memory.reserved.best <= memory.reserved.high
    assert memory.device.low < memory.device.best < memory.device.high


def test_expandable_segments_grow_from_what_is_free_at_their_end() -> None:
    """100 MiB and 30 more: five pages of 20 MiB, then two; 120 freed at the end grow to 150 with two pages more."""
    memory = CachingAllocator(expandable=True)
    first, second = memory.allocate(100 * MIB), memory.allocate(30 * MIB)
    assert memory.reserved == 140 * MIB
    memory.release(first)
    memory.release(second)
    third = memory.allocate(150 * MIB)
    assert (memory.allocated, memory.reserved) == (150 * MIB, 160 * MIB)
    memory.release(third)
    memory.allocate(20 * MIB)
    memory.allocate(130 * MIB)
    assert memory.reserved == 160 * MIB


def test_expandable_segments_are_read_from_the_environment() -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        found = parse((Recipe,), ["MODEL"], environment={name: "max_split_size_mb:128,expandable_segments:True"})
        assert found.given["expandable_segments"] is True
    plans = [
        plan_training(load_model("Qwen/Qwen2.5-0.5B"), Recipe(method="lora", expandable_segments=grows), find_gpu("T4"))
        for grows in (False, True)
    ]
    usual, grown = (plan.memory for plan in plans)
    assert usual is not None and grown is not None
    assert grown.reserved.best >= plans[1].allocated_bytes
    assert grown.reserved.best <= usual.reserved.best + 40 * MIB
