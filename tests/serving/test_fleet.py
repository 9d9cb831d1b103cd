"""Sizing conserves: nobody is lost, more load never takes fewer cards, and spares do what they say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Deployment, find_gpu, load_model
from planner.contract.engine import find_engine
from planner.contract.lengths import parse_lengths
from planner.errors import UsageError
from planner.serving.curves import context_curve, user_curve
from planner.serving.fleet import Candidate, Demand, nodes, size_fleet
from planner.serving.redundancy import Redundancy, parse_redundancy

VLLM = find_engine("vllm")
LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")
CARDS = [find_gpu(name) for name in ("h100", "l40s", "4090", "a100 80gb")]


def demand(users: int, **changes: object) -> Demand:
    base = Demand(
        users=users, input_lengths=parse_lengths("p50=600,p95=4000", option="--input-len"),
        output_lengths=parse_lengths("p50=200,p95=800", option="--output-len"),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def fleet(asked: Demand, card: int = 0, sizes: tuple[int, ...] = ()) -> Candidate:
    found, _ = size_fleet(VLLM, LLAMA, Deployment(), asked, cards=[CARDS[card]], sizes=sizes)
    return found[0]


demands = st.builds(
    demand,
    users=st.integers(1, 100_000),
    duty_cycle=st.sampled_from([1.0, 0.5, 0.1, 0.03]),
    redundancy=st.sampled_from([Redundancy(), Redundancy(spares=1), Redundancy(spares=2), Redundancy(share=0.25),
                                Redundancy(zones=3)]),
    growth=st.sampled_from([0.0, 0.3, 1.0]),
    tokens_per_second=st.sampled_from([None, 10.0, 40.0]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(demands, st.integers(0, 3))
def test_replicas_hold_everybody_even_after_a_failure(asked: Demand, card: int) -> None:
    found = fleet(asked, card)
    load = asked.users * (1 + asked.growth)
    assert found.users_per_replica * found.replicas >= load - 1e-6
    assert found.users_per_replica * (found.replicas - 1) < load  # and not one replica more than needed
    if asked.redundancy != Redundancy():
        assert found.users_after_failure >= load - 1e-6
    else:
        assert found.total_gpus == found.gpus
    assert found.total_gpus == found.total_replicas * found.tensor_parallel_size
    assert found.nodes * 8 >= found.total_gpus


@settings(max_examples=40, deadline=None)
@given(demands, st.integers(0, 3))
def test_twice_the_users_never_take_fewer_gpus(asked: Demand, card: int) -> None:
    assert fleet(replace(asked, users=2 * asked.users), card).total_gpus >= fleet(asked, card).total_gpus


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 1_000_000), st.sampled_from([1.0, 0.2]))
def test_without_redundancy_it_is_the_plain_ceiling(users: int, duty: float) -> None:
    found = fleet(demand(users, duty_cycle=duty), sizes=(1,))
    assert found.total_gpus == math.ceil(users / found.users_per_replica)


def test_users_of_a_replica_by_hand() -> None:
    """A request at p95 is 4,800 tokens = 300 blocks of 16; the pool holds num_blocks // 300 of them."""
    found = fleet(demand(100), sizes=(1,))
    assert found.users_by_memory == found.plan.num_blocks // 300
    assert found.binding == "memory"
    slower = fleet(demand(100, tokens_per_second=120.0), sizes=(1,))
    assert slower.users_by_throughput is not None and slower.users_by_throughput < slower.users_by_memory
    assert slower.binding in ("decode bandwidth", "prefill compute")
    assert slower.users_per_replica == slower.users_by_throughput


def test_too_slow_and_too_large_are_said() -> None:
    _, rejected = size_fleet(
        VLLM, load_model("meta-llama/Llama-3.1-405B-Instruct"), Deployment(), demand(10), cards=[find_gpu("4090")]
    )
    assert "short by" in rejected[0].reason
    _, rejected = size_fleet(VLLM, LLAMA, Deployment(), demand(10, tokens_per_second=10_000.0), cards=CARDS[:1])
    assert "slower than asked" in rejected[0].reason
    _, rejected = size_fleet(VLLM, LLAMA, Deployment(), demand(10, time_to_first_token=1e-6), cards=CARDS[:1])
    assert "prefill compute" in rejected[0].reason


def test_what_one_node_cannot_hold_takes_stages_over_two() -> None:
    """405 B weights in 16 bit are 756 GiB, eight cards of 79.19 GiB hold 634: two nodes of eight."""
    found, _ = size_fleet(
        VLLM, load_model("meta-llama/Llama-3.1-405B-Instruct"), Deployment(), demand(10), cards=[find_gpu("h100")]
    )
    assert (found[0].tensor_parallel_size, found[0].pipeline_parallel_size) == (8, 2)
    assert found[0].gpus == 16 * found[0].replicas and found[0].nodes == 2 * found[0].replicas


@pytest.mark.parametrize(
    ("text", "needed", "replicas"),
    [
        ("0", 10, 10), ("N+1", 10, 11), ("n+2", 10, 12), ("20%", 10, 12), ("25%", 10, 13),
        ("zones=3", 10, 15),  # two zones must carry 10: five each, three zones of five
        ("zones=2", 1, 2),
    ],
)  # fmt: skip
def test_redundancy(text: str, needed: int, replicas: int) -> None:
    assert parse_redundancy(text).replicas(needed) == replicas


@pytest.mark.parametrize("text", ["", "N+", "zones=1", "-1", "many", "N+1.5"])
def test_redundancy_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--redundancy"):
        parse_redundancy(text)


@pytest.mark.parametrize(
    ("replicas", "ways", "each", "expected"),
    [(1, 1, 8, 1), (9, 1, 8, 2), (3, 4, 8, 2), (2, 8, 8, 2), (1, 16, 8, 2), (5, 3, 8, 3)],
)
def test_no_replica_lies_across_nodes_that_one_could_hold(replicas: int, ways: int, each: int, expected: int) -> None:
    assert nodes(replicas, ways, each) == expected


def test_curves() -> None:
    found = fleet(demand(500, redundancy=Redundancy(spares=1)))
    contexts = list(context_curve(found))
    assert [point.at for point in contexts] == [1 << bit for bit in range(10, 18)]
    assert [point.value for point in contexts] == sorted((point.value for point in contexts), reverse=True)
    users = list(user_curve(found))
    assert users[-1].at >= found.total_gpus
    assert all(point.value == point.at // found.tensor_parallel_size * found.users_per_replica for point in users)
