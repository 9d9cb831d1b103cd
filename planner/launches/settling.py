"""--set NAME=VALUE put over what was read: the model, the tool's inputs, and the needs that it settles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import inputs_of
from planner.launches.engines.options import options, read_value
from planner.launches.record import Launch, LaunchPlan, Value
from planner.launches.scalars import scalar
from planner.training.recipe import Recipe

# Names that sources use for an input of the recipe.
_RECIPE: Final = {
    "max_length": "max_seq_length",
    "sequence_len": "max_seq_length",
    "cutoff_len": "max_seq_length",
    "block_size": "max_seq_length",
    "tokenizer.max_seq_len": "max_seq_length",
    "lora_r": "lora_rank",
    "micro_batch_size": "per_device_train_batch_size",
    "batch_size": "per_device_train_batch_size",
}
_SETTLES: Final = re.compile(r"--set ([\w.$-]+)=VALUE")


def apply_settings(launch: Launch, values: Mapping[str, str]) -> None:
    """Put the given values into every plan that has such an input, and drop the needs that they settle."""
    if not values:
        return
    launch.needs[:] = [need for need in launch.needs if not _settled(need, values)]
    for plan in launch.plans:
        if "model" in values and plan.model is None:
            plan.model, plan.model_source = values["model"], "--set"
        for name, text in values.items():
            found = _input(plan, name)
            if found is not None:
                option, kind = found
                plan.inputs[option] = Value(_read(kind, text, name), 1, "", "--set")


def _settled(need: str, values: Mapping[str, str]) -> bool:
    named = _SETTLES.search(need)
    given = {name.replace("-", "_") for name in values}
    return named is not None and named[1].replace("-", "_") in given


def _input(plan: LaunchPlan, name: str) -> tuple[str, str] | None:
    """(option, kind) of a plan's input that this name means; None for none."""
    if plan.kind == "train":
        field = _RECIPE.get(name, name.replace("-", "_"))
        return (field.replace("_", "-"), "") if field in {one.name for one in fields(Recipe)} else None
    for option in options(plan.tool):
        if option.role == "input" and option.name.replace("-", "_") == name.replace("-", "_"):
            return option.name, option.kind
    declared: Iterable[Any] = inputs_of(find_engine(plan.tool).Deployment) if plan.tool in engine_names() else ()
    spelled = {one.spelling.lstrip("-").replace("-", "_"): one.spelling.lstrip("-") for one in declared}
    found = spelled.get(name.replace("-", "_"))
    return (found, "") if found is not None and found not in ("gpu", "gpu-memory") else None


def _read(kind: str, text: str, name: str) -> Any:
    return read_value(kind, text, name=f"--set {name}", line=1) if kind else scalar(text)
