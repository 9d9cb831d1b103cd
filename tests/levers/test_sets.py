"""Laws of the advice, over random models, cards and workloads."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planner.levers.candidates import serving_levers

from planner import Deployment, Model, plan_serving
from planner.engines.vllm.plan import VllmPlan as ServingPlan
from planner.levers.advice import advise
from planner.levers.effect import effects
from planner.levers.question import ServingQuestion
from planner.levers.search import merged
from planner.units import GIB
from tests.engines.vllm.test_laws import models

workloads = st.builds(
    Deployment,
    gpu_memory_bytes=st.integers(4, 48).map(lambda size: size * GIB),
    max_model_len=st.sampled_from([2048, 8192, 32768]),
    max_num_seqs=st.sampled_from([None, 16, 256]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    gpu_memory_utilization=st.sampled_from([None, 0.5, 0.9, 0.98]),
    enforce_eager=st.booleans(),
    concurrency=st.integers(1, 64),
    engine_version=st.sampled_from(["0.19.0", "0.24.0", "0.30.0"]),
)


def total_need(plan: ServingPlan, question: ServingQuestion) -> int:
    """Everything one GPU must hold, added up here from the plan's own parts."""
    parts = sum(part.best for part in plan.budget.inside) + sum(part.best for part in plan.budget.outside)
    wanted = plan.resolved.asked.concurrency * plan.pool.blocks_for(plan.resolved.max_model_len)
    return parts + wanted * plan.pool.bytes_per_block


@settings(max_examples=40, deadline=None)
@given(models, workloads)
def test_a_claimed_saving_is_the_difference_of_two_plans(subject: Model, deployment: Deployment) -> None:
    question = ServingQuestion(model=subject, deployment=deployment)
    before = plan_serving(subject, deployment)
    for effect in effects(question, before, serving_levers(before)):
        after = question.ask(effect.setting.changes)
        if effect.setting.name == "gpu-memory-utilization":
            difference = abs(after.budget.requested_bytes - before.budget.requested_bytes)
        else:
            difference = total_need(before, question) - total_need(after, question)
        assert effect.saves_bytes == difference
        assert effect.fits_alone == (after.verdict == "fits")


@settings(max_examples=40, deadline=None)
@given(models, workloads)
def test_a_proposed_set_fits_and_every_member_is_needed(subject: Model, deployment: Deployment) -> None:
    question = ServingQuestion(model=subject, deployment=deployment)
    before = plan_serving(subject, deployment)
    assume(before.verdict != "fits")
    advice = advise(question, before)
    assert len(advice.plans) <= 5
    for one in advice.plans:
        assert question.ask(merged(one.settings)).verdict == one.verdict == "fits"
        for index in range(len(one.settings)):
            assert not question.fits(merged(one.settings[:index] + one.settings[index + 1 :]))
        after = question.ask(merged(one.settings))
        if len(one.settings) > 1 or one.settings[0].name != "gpu-memory-utilization":
            difference = total_need(before, question) - total_need(after, question)
            assert one.saves_bytes == (difference or one.saves_bytes)


@settings(max_examples=25, deadline=None)
@given(models, workloads)
def test_kept_inputs_are_left_alone(subject: Model, deployment: Deployment) -> None:
    question = ServingQuestion(model=subject, deployment=deployment)
    before = plan_serving(subject, deployment)
    keep = frozenset({"max_model_len", "concurrency", "kv_cache_dtype", "gpu_memory_utilization"})
    advice = advise(question, before, keep=keep)
    touched = {name for effect in advice.levers for name in effect.setting.changes}
    touched |= {name for one in advice.plans for setting in one.settings for name in setting.changes}
    assert not touched & keep
