"""The library: the questions of the command line as functions. Import them from `planner`.

A model may be given by name wherever one is asked for; every error that the input causes is a `PlannerError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from planner.contract.engine import Engine, engine_names, find_engine
from planner.contract.plan import ServingPlan
from planner.contract.workload import ONE_REQUEST, Workload
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, find_gpu
from planner.levers.advice import Advice
from planner.model.load import load_model
from planner.model.model import Model
from planner.serving.fleet import Candidate, Demand, Rejected, size_fleet
from planner.serving.grid import Cell, Grid, grid_cells
from planner.training.plan import TrainingPlan
from planner.training.plan import plan_training as plan_recipe
from planner.training.recipe import Recipe


def plan_serving(
    model: Model | str, deployment: Any, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> ServingPlan:
    """The plan of a server; the deployment's own type says which engine.

    Raises:
        PlannerError: an unknown model, an input out of range, contradictory, or refused by the engine.
    """
    return engine_of(deployment).plan(_loaded(model), deployment, workload, notes=notes)


def plan_training(
    model: Model | str, recipe: Recipe, gpu: Gpu | str | None, *, gpu_memory_bytes: int | None = None
) -> TrainingPlan:
    """The plan of a fine-tune on a card.

    Raises:
        PlannerError: an unknown model or card, or a recipe that is impossible.
    """
    card = find_gpu(gpu) if isinstance(gpu, str) else gpu
    return plan_recipe(_loaded(model), recipe, card, gpu_memory_bytes=gpu_memory_bytes)


def compare(
    models: Sequence[Model | str],
    deployments: Sequence[Any],
    *,
    lengths: Sequence[int],
    quantizations: Sequence[str | None] = (None,),
    cache_dtypes: Sequence[str | None] = (None,),
    workload: Workload = ONE_REQUEST,
) -> Iterator[Cell]:
    """Every combination of models, deployments, formats, cache types and lengths, each as a row of figures.

    Raises:
        PlannerError: an unknown model; a combination that cannot be planned is a row with the verdict "refused".
    """
    loaded = [_loaded(model) for model in models]
    for deployment in deployments:
        yield from grid_cells(
            Grid(
                engine=engine_of(deployment),
                models=loaded,
                deployments=[deployment],
                quantizations=quantizations,
                cache_dtypes=cache_dtypes,
                lengths=lengths,
                workload=workload,
            )
        )


def size(
    model: Model | str, deployment: Any, demand: Demand, *, cards: Sequence[Gpu | str], gpus_per_node: int = 8
) -> tuple[tuple[Candidate, ...], tuple[Rejected, ...]]:
    """(layouts that carry the load, the fewest GPUs first; cards that cannot, and why).

    Raises:
        PlannerError: as `plan_serving`, when no card can even be planned.
    """
    found = [find_gpu(card) if isinstance(card, str) else card for card in cards]
    return size_fleet(
        engine_of(deployment), _loaded(model), deployment, demand, cards=found, gpus_per_node=gpus_per_node
    )


def advise(plan: ServingPlan, *, keep: Sequence[str] = (), goal: str | None = None) -> Advice:
    """What could be changed about a plan: single levers, sets that fit, and which card would do.

    Args:
        keep: options that no proposal may touch.
        goal: a quantity to solve for ("largest context at 16 users").

    Raises:
        UsageError: a name that no lever changes, a goal that is none.
    """
    from planner.levers.advice import advise as advise_question
    from planner.levers.advice import kept_inputs
    from planner.levers.goal import parse_goal
    from planner.levers.question import ServingQuestion

    question = ServingQuestion(
        engine=find_engine(plan.engine), model=plan.model, deployment=plan.deployment, workload=plan.workload
    )
    kept = kept_inputs(question, keep)
    return advise_question(question, plan, keep=kept, goal=parse_goal(goal) if goal is not None else None)


def to_json(result: Any) -> dict[str, Any]:
    """Any result as the object that the command line prints with --format json.

    Raises:
        UsageError: no result of this library.
    """
    from planner.diagnosis.result import Diagnosis
    from planner.report.serving import plan_json
    from planner.report.training import training_json

    if isinstance(result, ServingPlan):
        return plan_json(result)
    if isinstance(result, TrainingPlan):
        return training_json(result)
    if isinstance(result, Diagnosis):
        return result.to_json()
    if isinstance(result, Cell):
        return result._asdict()
    if isinstance(result, Candidate):
        from planner.report.size import fleet_row

        return fleet_row(result, {})
    raise UsageError(f"{type(result).__name__} is no result of this library", field="result")


def engine_of(deployment: Any) -> Engine:
    """The engine whose inputs these are.

    Raises:
        UsageError: no engine's.
    """
    for name in engine_names():
        engine = find_engine(name)
        if isinstance(deployment, engine.Deployment):
            return engine
    raise UsageError(f"{type(deployment).__name__} is no engine's deployment", field="deployment")


def _loaded(model: Model | str) -> Model:
    return load_model(model) if isinstance(model, str) else model
