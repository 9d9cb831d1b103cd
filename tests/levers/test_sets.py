"""Laws of the advice, over random models, cards and workloads."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import Deployment
from planner.contract.engine import find_engine
from planner.contract.workload import Workload
from planner.engines.vllm.levers import serving_levers
from planner.engines.vllm.plan import VllmPlan
from planner.levers.advice import advise
from planner.levers.effect import effects
from planner.levers.question import ServingQuestion
from planner.levers.search import merged
from planner.units import GIB
from tests.engines.vllm.test_laws import models

VLLM = find_engine("vllm")
deployments = st.builds(
    Deployment,
    gpu_memory_bytes=st.integers(4, 48).map(lambda size: size * GIB),
    max_model_len=st.sampled_from([2048, 8192, 32768]),
    max_num_seqs=st.sampled_from([None, 16, 256]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    gpu_memory_utilization=st.sampled_from([None, 0.5, 0.9, 0.98]),
    enforce_eager=st.booleans(),
    engine_version=st.sampled_from(["0.19.0", "0.24.0", "0.30.0"]),
)
questions = st.builds(
    ServingQuestion,
    engine=st.just(VLLM),
    model=models,
    deployment=deployments,
    workload=st.builds(Workload, concurrency=st.integers(1, 64), accept=st.sampled_from(["tight", "fits"])),
)


def planned(question: ServingQuestion) -> VllmPlan:
    plan = question.ask({})
    assert isinstance(plan, VllmPlan)
    return plan


def total_need(plan: Any) -> int:
    """Everything one GPU must hold, added up here from the plan's own parts."""
    parts = sum(part.best for part in plan.budget.inside) + sum(part.best for part in plan.budget.outside)
    wanted = plan.workload.concurrency * plan.pool.blocks_for(plan.resolved.max_model_len)
    return parts + wanted * plan.pool.bytes_per_block


@settings(max_examples=15, deadline=None)
@given(questions)
def test_a_claimed_saving_is_the_difference_of_two_plans(question: ServingQuestion) -> None:
    before = planned(question)
    levers = [lever for lever in serving_levers(before) if len(lever.values)]
    for effect in effects(question, before, levers):
        after: Any = question.ask(effect.setting.changes)
        if effect.setting.name == "gpu-memory-utilization":
            difference = abs(after.budget.requested_bytes - before.budget.requested_bytes)
        else:
            difference = total_need(before) - total_need(after)
        assert effect.saves_bytes == difference
        assert effect.verdict == after.verdict
        reached = ("fits", "tight") if question.workload.accept == "tight" else ("fits",)
        assert effect.fits_alone == (after.verdict in reached)


@settings(max_examples=15, deadline=None)
@given(questions)
def test_a_proposed_set_is_accepted_and_every_member_is_needed(question: ServingQuestion) -> None:
    before = planned(question)
    reached = ("fits", "tight") if question.workload.accept == "tight" else ("fits",)
    assume(before.verdict not in reached)
    advice = advise(question, before)
    assert len(advice.plans) <= 5
    for one in advice.plans:
        assert question.ask(merged(one.settings)).verdict == one.verdict
        assert one.verdict in reached
        for index in range(len(one.settings)):
            assert not question.fits(merged(one.settings[:index] + one.settings[index + 1 :]))
        after: Any = question.ask(merged(one.settings))
        if len(one.settings) > 1 or one.settings[0].name != "gpu-memory-utilization":
            difference = total_need(before) - total_need(after)
            assert one.saves_bytes == (difference or one.saves_bytes)


@settings(max_examples=10, deadline=None)
@given(questions)
def test_kept_inputs_are_left_alone(question: ServingQuestion) -> None:
    before = planned(question)
    keep = frozenset({"max_model_len", "concurrency", "kv_cache_dtype", "gpu_memory_utilization"})
    advice = advise(question, before, keep=keep)
    touched = {name for effect in advice.levers for name in effect.setting.changes}
    touched |= {name for one in advice.plans for setting in one.settings for name in setting.changes}
    assert not touched & keep
