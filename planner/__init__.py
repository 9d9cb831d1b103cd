"""vram-planner: says by arithmetic, before you rent a GPU, whether a model fits.

    from planner import Deployment, find_gpu, load_model, plan_serving

    model = load_model("meta-llama/Llama-3.1-8B-Instruct")
    plan = plan_serving(model, Deployment(gpu=find_gpu("H100"), max_model_len=8192))
    plan.verdict, plan.kv_cache_bytes, plan.max_concurrency

Everything here is typed; sizes are `int` bytes; every error that the input causes is a `PlannerError`.
Names are imported when they are first used, so that `import planner` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from planner.version import __version__

if TYPE_CHECKING:
    from planner.contract.lengths import Lengths, parse_lengths
    from planner.contract.plan import ServingPlan
    from planner.diagnosis import diagnose
    from planner.engines.vllm.deployment import Deployment
    from planner.engines.vllm.instances import plan_serving
    from planner.errors import PlannerError
    from planner.hardware.gpus import Gpu, find_gpu
    from planner.model.load import load_model
    from planner.model.model import Model
    from planner.report.serving import plan_json
    from planner.training.plan import TrainingPlan, plan_training
    from planner.training.recipe import Recipe
    from planner.units import format_size, parse_size

_HOMES = {
    "Deployment": "planner.engines.vllm.deployment",
    "diagnose": "planner.diagnosis",
    "Gpu": "planner.hardware.gpus",
    "Lengths": "planner.contract.lengths",
    "Model": "planner.model.model",
    "PlannerError": "planner.errors",
    "Recipe": "planner.training.recipe",
    "ServingPlan": "planner.contract.plan",
    "TrainingPlan": "planner.training.plan",
    "find_gpu": "planner.hardware.gpus",
    "format_size": "planner.units",
    "load_model": "planner.model.load",
    "parse_lengths": "planner.contract.lengths",
    "parse_size": "planner.units",
    "plan_json": "planner.report.serving",
    "plan_serving": "planner.engines.vllm.instances",
    "plan_training": "planner.training.plan",
}

__all__ = [
    "Deployment",
    "Gpu",
    "Lengths",
    "Model",
    "PlannerError",
    "Recipe",
    "ServingPlan",
    "TrainingPlan",
    "__version__",
    "diagnose",
    "find_gpu",
    "format_size",
    "load_model",
    "parse_lengths",
    "parse_size",
    "plan_json",
    "plan_serving",
    "plan_training",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
