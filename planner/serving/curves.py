"""Capacity curves: requests at once by context, users by GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.contract.engine import find_engine
from planner.serving.fleet import Candidate


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a capacity curve: of which card, at what, how many."""

    gpu: str
    tensor_parallel_size: int
    at: int
    value: int


def context_curve(candidate: Candidate) -> Iterator[CurvePoint]:
    """Requests at once by max_model_len, doubling from 1,024 to what the model was made for."""
    plan = candidate.plan
    most = plan.positions
    lengths = [1 << bit for bit in range(10, 41) if 1 << bit < most] + [most]
    for length in lengths:
        engine = find_engine(plan.engine)
        other = engine.plan(plan.model, replace(plan.deployment, **{engine.axes.length: length}))
        held = int(other.cache.max_concurrency) if other.startup_error is None else 0
        yield CurvePoint(candidate.gpu.name, candidate.tensor_parallel_size, length, held)


def user_curve(candidate: Candidate, *, points: int = 16) -> Iterator[CurvePoint]:
    """Users by GPUs, without redundancy, for 1 to at least the replicas that the load takes."""
    most = max(candidate.total_replicas, 2)
    step = max(1, -(-most // points))
    for replicas in range(step, most + step, step):
        gpus = replicas * candidate.tensor_parallel_size * candidate.pipeline_parallel_size
        yield CurvePoint(
            candidate.gpu.name, candidate.tensor_parallel_size, gpus, replicas * candidate.users_per_replica
        )
