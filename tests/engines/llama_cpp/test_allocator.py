"""ggml's allocator: holes, in-place results, copies; expectations worked out by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.engines.llama_cpp.compute import representatives
from planner.engines.llama_cpp.graph.allocator import Arena
from planner.engines.llama_cpp.graph.schedule import reserved_bytes
from planner.engines.llama_cpp.graph.tensor import Graph


def test_the_smallest_hole_that_holds_it_is_taken() -> None:
    arena = Arena(alignment=128)
    first, kept, second, last = (arena.take(size) for size in (1024, 128, 512, 128))
    arena.give_back(first, 1024)
    arena.give_back(second, 512)
    assert arena.take(512) == second  # not the larger hole before it
    assert arena.take(256) == first
    assert (kept, last, arena.peak_bytes) == (1024, 1664, 1792)


def test_neighbouring_holes_become_one() -> None:
    arena = Arena(alignment=1)
    places = [arena.take(10) for _ in range(4)]
    for place in (places[0], places[2], places[1]):
        arena.give_back(place, 10)
    assert arena.take(30) == 0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_what_is_given_back_leaves_one_endless_hole(sizes: list[int], order: object) -> None:
    arena = Arena(alignment=128)
    taken = [(arena.take(arena.aligned(size)), arena.aligned(size)) for size in sizes]
    order.shuffle(taken)  # type: ignore[attr-defined]
    for place, size in taken:
        arena.give_back(place, size)
    assert (arena.offsets, len(arena.sizes)) == ([0], 1)
    assert arena.peak_bytes == sum(-(-size // 128) * 128 for size in sizes)


def test_a_sum_takes_the_place_of_a_result_that_nobody_else_reads() -> None:
    """x [4, 8] F32 on the card: the copied input, the product, and the sum in the product's place."""
    graph = Graph()
    x = graph.new_input(4, 8)
    product = graph.mul_mat(graph.weight(0, 4, 4), x)
    graph.expand(graph.same("add", product, graph.weight(0, 4)))
    card, host = reserved_bytes(graph, [128, 32])
    assert (card, host) == (2 * 128, 128)


def test_a_result_that_is_read_again_keeps_its_place() -> None:
    graph = Graph()
    product = graph.mul_mat(graph.weight(0, 4, 4), graph.new_input(4, 8))
    total = graph.same("add", product, graph.weight(0, 4))
    graph.expand(graph.same("mul", total, product))
    card, _ = reserved_bytes(graph, [128, 32])
    # the input is free again once the product is there, so that the sum goes into its place
    assert card == 2 * 128


def test_pipeline_parallelism_keeps_four_copies_of_an_input_everywhere() -> None:
    graph = Graph()
    x = graph.new_input(32, 8)  # 1,024 bytes
    first = graph.mul_mat(graph.weight(0, 32, 32), x)
    graph.expand(graph.mul_mat(graph.weight(1, 32, 32), first))
    one, two, host = reserved_bytes(graph, [128, 128, 32], copies=4)
    assert (one, two, host) == (5 * 1024, 5 * 1024, 4 * 1024)


def test_of_layers_that_repeat_three_rounds_are_built() -> None:
    assert representatives(["a"] * 32) == [0, 1, 2, 31]
    assert representatives(["d", *["m"] * 20]) == [0, 1, 2, 3, 20]
    assert representatives(["d", "m", "m", "m", "m", "m"]) == [0, 1, 2, 3, 4, 5]  # nothing gained
    assert representatives(["l", "l", "l", "f"] * 9) == [*range(8), *range(32, 36)]
    assert representatives(["x"]) == [0]
