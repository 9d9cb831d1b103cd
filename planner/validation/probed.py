"""Scoring what the probe recorded: the same workload planned again, set against the record's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from planner.errors import PlannerError, UsageError
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.model.shallow.subject import read_subject
from planner.training.generation import Generation, generation_bytes
from planner.training.outside import workspace_bytes
from planner.training.plain_loop import plain_loop_bytes, plain_loop_recipe
from planner.training.recipe import Recipe
from planner.units import GIB
from planner.validation.cases import Case

PROBE: Final = "probe"


def is_probed(case: Case) -> bool:
    """The case is a record of the probe."""
    return case.given("engine") == "transformers" and case.given("probe") in ("serve", "train")


def planned_figures(case: Case) -> dict[str, int]:
    """Name of a figure -> bytes planned, for what the plan has a term for.

    Raises:
        PlannerError: the model or the workload is refused.
    """
    subject = read_subject(case.config or case.model)
    depth = case.given("num_hidden_layers")
    model = subject.model if depth is None else subject.at_depth(_whole(depth, "num_hidden_layers"))[0]
    workload = case.given("workload")
    if not isinstance(workload, Mapping):
        raise UsageError(f"{case.id}: the record has no workload")
    on_cpu = case.given("device") == "cpu"
    workspace = 0 if on_cpu else workspace_bytes(_card(case), trains=case.given("probe") == "train")
    if case.given("probe") == "serve":
        planned = generation_bytes(
            model, Generation.from_inputs(workload), exact_sizes=on_cpu, workspace_bytes=workspace
        )
    else:
        planned = plain_loop_bytes(model, _recipe(workload), exact_sizes=on_cpu, workspace_bytes=workspace)
    return {name: size for name, size in planned.items() if size is not None}


def measured_figure(case: Case, name: str) -> float | None:
    """The record's figure of this name in GiB."""
    return case.number(f"{name}_gib")


def _recipe(workload: Mapping[str, Any]) -> Recipe:
    known = {field.name for field in fields(Recipe)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in workload.items() if name in known
    }
    try:
        return plain_loop_recipe(Recipe(**values))
    except TypeError as error:
        raise UsageError(f"the record's workload is no recipe: {error}") from None


def _card(case: Case) -> Gpu:
    stated = case.given("gpu_memory_gib")
    size = round(stated * GIB) if isinstance(stated, int | float) and stated > 0 else 0
    if not size:
        raise UsageError(f"{case.id}: gpu_memory_gib is missing")
    try:
        return find_gpu(str(case.given("gpu")), memory_bytes=size)
    except PlannerError:
        return unnamed_gpu(size)


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be a whole number")
    return value
