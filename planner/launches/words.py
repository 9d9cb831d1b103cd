"""A plan that was read, as the words of `vram-planner serve` or `train` that ask the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from planner.launches.record import LaunchPlan
from planner.training.recipe import Recipe

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
    spelled = _SPELLED.get(plan.tool, {})
    for name, value in plan.inputs.items():
        words += option_words(spelled.get(name, name), value.value)
    for name, value in plan.further.items():
        words += option_words(name, value.value if value.value != "" else True)
    return words


def train_words(plan: LaunchPlan, card: Mapping[str, str]) -> list[str]:
    """MODEL and the options of `train`: what is stated, and the trainer's own defaults."""
    words = [plan.model or "", "--framework", plan.tool]
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
