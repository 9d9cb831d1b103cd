"""A plan that was read, as the words of `vram-planner serve` or `train` that ask the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from planner.contract.engine import find_engine
from planner.contract.inputs import inputs_of
from planner.contract.parser import dashed
from planner.launches.engines.variants import own_inputs
from planner.launches.record import LaunchPlan
from planner.training.recipe import Recipe, frameworks

# Options files' keys that the engine has an option of its own for.
_SPELLED: Final = {
    "tensorrt-llm": {"kv_cache_config.free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction"},
}
# What a trainer's plan holds beside the recipe's own inputs.
_NO_OPTION: Final = re.compile(r"[a-z]+\.")
_RELEASE: Final = re.compile(r"\d+(?:\.\d+){1,2}")
# A switch that is off by default needs no word.
_DEFAULTS: Final = {one.name: one.default for one in fields(Recipe)}
# Frameworks whose release the recipe asks for, and the option that takes it.
_RELEASED: Final = {"torchtune": "framework-version", "transformers": "transformers-version"}


def serve_words(plan: LaunchPlan, card: Mapping[str, str]) -> list[str]:
    """MODEL and the options of `serve`; `card` has --gpu and --gpu-memory as given."""
    words = [plan.model or ""]
    if plan.tool != "vllm":
        words += ["--engine", plan.tool]
    release = _RELEASE.match(plan.version or "")
    if plan.version is not None and (release or plan.tool == "llama.cpp"):
        words += ["--engine-version", release[0] if release else plan.version]
    words += _card(card)
    for name, value in own_inputs(plan):
        if takes(plan.tool, spelled_of(plan.tool, name)):
            words += option_words(spelled_of(plan.tool, name), value)
    for name, further in plan.further.items():
        words += option_words(name, further.value if further.value != "" else True)
    return words


def spelled_of(tool: str, name: str) -> str:
    """The option of an engine's planner for an input that was read."""
    return _SPELLED.get(tool, {}).get(name, name)


def takes(tool: str, name: str) -> bool:
    """Whether an engine's planner takes an input of this name; parts of an object count by their head."""
    engine = find_engine(tool)
    known = {dashed(spelling) for one in inputs_of(engine.Deployment) for spelling in one.spellings}
    head = dashed(f"--{name}").partition(".")[0]
    return bool({head, f"--no-{head[2:]}"} & known) or engine.takes(head) is not None


def framework_of(tool: str) -> str:
    """The name that a trainer goes by among the planner's frameworks."""
    return tool if tool in frameworks() else tool.removeprefix("ms-")


def train_words(plan: LaunchPlan, card: Mapping[str, str]) -> list[str]:
    """MODEL and the options of `train`: what is stated, and the trainer's own defaults."""
    words = [plan.model or "", "--framework", framework_of(plan.tool)]
    option, release = _RELEASED.get(plan.tool), _RELEASE.match(plan.version or "")
    if option and release:
        words += [f"--{option}", release[0]]
    words += _card(card)
    alone = shares_nothing(plan)
    for name, value in {**plan.defaults, **{name: one.value for name, one in plan.inputs.items()}}.items():
        off = value is False and _DEFAULTS.get(name.replace("-", "_")) is False
        if not off and not _NO_OPTION.match(name) and not (alone and name == "sharding"):
            words += option_words(name, value)
    return words


def shares_nothing(plan: LaunchPlan) -> bool:
    """Whether a sharding is stated and one GPU is planned: there is nothing to share."""
    return plan.get("num-gpus", 1) == 1 and plan.get("sharding") not in (None, "none")


def _card(card: Mapping[str, str]) -> list[str]:
    return [word for name, value in card.items() for word in (f"--{name}", value)]


def option_words(name: str, value: Any) -> list[str]:
    """One option with its value as its reader takes it."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value, separators=(",", ":"))]
    if isinstance(value, list | tuple):
        return [f"--{name}", ",".join(str(one) for one in value)]
    if isinstance(value, float):
        return [f"--{name}", f"{value:.10g}"]
    if isinstance(value, int) and value < 0:
        return [f"--{name}={value}"]
    return [f"--{name}", str(value)]
