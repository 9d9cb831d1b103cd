"""vram-planner: says by arithmetic, before you rent a GPU, whether a model fits.

    from planner import Deployment, find_gpu, plan_serving

    plan = plan_serving("meta-llama/Llama-3.1-8B-Instruct", Deployment(gpu=find_gpu("H100"), max_model_len=8192))
    plan.verdict, plan.cache.reserved_bytes, plan.cache.max_concurrency

Everything here is typed; sizes are `int` bytes; every error that the input causes is a `PlannerError`.
Names are imported when they are first used, so that `import planner` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from planner.version import __version__

if TYPE_CHECKING:
    from planner.api import advise, compare, plan_serving, plan_training, size, to_json
    from planner.contract.engine import find_engine
    from planner.contract.lengths import Lengths, parse_lengths
    from planner.contract.plan import ServingPlan
    from planner.contract.workload import Workload
    from planner.diagnosis import diagnose
    from planner.engines.vllm.deployment import Deployment
    from planner.errors import PlannerError
    from planner.hardware.gpus import Gpu, find_gpu
    from planner.levers.advice import Advice
    from planner.model.load import load_model
    from planner.model.model import Model
    from planner.serving.fleet import Demand
    from planner.training.plan import TrainingPlan
    from planner.training.recipe import Recipe
    from planner.units import format_size, parse_size

_HOMES = {
    "Advice": "planner.levers.advice",
    "Demand": "planner.serving.fleet",
    "Deployment": "planner.engines.vllm.deployment",
    "Gpu": "planner.hardware.gpus",
    "Lengths": "planner.contract.lengths",
    "Model": "planner.model.model",
    "PlannerError": "planner.errors",
    "Recipe": "planner.training.recipe",
    "ServingPlan": "planner.contract.plan",
    "TrainingPlan": "planner.training.plan",
    "Workload": "planner.contract.workload",
    "advise": "planner.api",
    "compare": "planner.api",
    "diagnose": "planner.diagnosis",
    "find_engine": "planner.contract.engine",
    "find_gpu": "planner.hardware.gpus",
    "format_size": "planner.units",
    "load_model": "planner.model.load",
    "parse_lengths": "planner.contract.lengths",
    "parse_size": "planner.units",
    "plan_serving": "planner.api",
    "plan_training": "planner.api",
    "size": "planner.api",
    "to_json": "planner.api",
}

__all__ = [
    "Advice",
    "Demand",
    "Deployment",
    "Gpu",
    "Lengths",
    "Model",
    "PlannerError",
    "Recipe",
    "ServingPlan",
    "TrainingPlan",
    "Workload",
    "__version__",
    "advise",
    "compare",
    "diagnose",
    "find_engine",
    "find_gpu",
    "format_size",
    "load_model",
    "parse_lengths",
    "parse_size",
    "plan_serving",
    "plan_training",
    "size",
    "to_json",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
