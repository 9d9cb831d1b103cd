"""Compares what a reader found with what is expected: every value exactly, lists as sets, names by their words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from planner.launches.record import Launch, LaunchPlan

DATA = Path(__file__).parent / "data"

# The expectations write three inputs with one name for every engine, and prefix an engine's own inputs with its name:
# here is each engine's own spelling.
_OWN = {
    "sglang": {
        "tensor-parallel-size": "tp-size",
        "max-model-len": "context-length",
        "kv-cache-dtype": "kv-cache-dtype",
    },
    "tensorrt-llm": {
        "tensor-parallel-size": "tp_size",
        "max-model-len": "max_seq_len",
        "kv-cache-dtype": "kv_cache_dtype",
    },
}
_PREFIXES = ("sglang.", "trtllm.", "llamacpp.", "ollama.", "lmstudio.")
# Programs that are planned as another engine, with a variant.
_VARIANTS = {"lm-studio": "llama.cpp", "koboldcpp": "llama.cpp"}
_DEFAULTS = {"tensor-parallel-size": 1, "tp-size": 1, "tp_size": 1, "objective": "sft", "num-gpus": 1}


def fixtures() -> list[str]:
    return sorted(path.name.removesuffix(".expect.json") for path in DATA.glob("*.expect.json"))


def expectation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.expect.json").read_text("utf-8"))
    return found


def differences(launch: Launch, expected: dict[str, Any]) -> list[str]:
    """What is not as expected, in words; notes are counted apart."""
    found = []
    if launch.form != expected["form"]:
        found.append(f"form {launch.form}, expected {expected['form']}")
    if launch.outcome != expected["outcome"]:
        found.append(f"outcome {launch.outcome}, expected {expected['outcome']}: {launch.needs} {launch.error}")
    if len(launch.plans) != len(expected["plans"]):
        found.append(f"{len(launch.plans)} plans, expected {len(expected['plans'])}")
    for plan, wanted in zip(launch.plans, expected["plans"], strict=False):
        found += plan_differences(plan, wanted)
    for kind, said in (("needs", launch.needs), ("unread", launch.unread)):
        for one in expected[kind]:
            if not named(one, said):
                found.append(f"{kind}: {one!r} is not named in {said}")
    error = expected["error"]
    if (error is None) != (launch.error is None):
        found.append(f"error {launch.error!r}, expected {error}")
    if (
        error is not None
        and launch.error is not None
        and not any(word.lower() in launch.error.lower() for word in error["say"])
    ):
        found.append(f"error {launch.error!r} says none of {error['say']}")
    return found


def plan_differences(plan: LaunchPlan, wanted: dict[str, Any]) -> list[str]:
    found = []
    tool = wanted.get("engine") or wanted.get("framework")
    pairs: list[tuple[str, Any, Any]] = [
        ("kind", plan.kind, wanted["kind"]),
        ("tool", plan.tool, _VARIANTS.get(tool, tool)),
        ("version", plan.version, wanted["version"]),
        ("model", plan.model, wanted["model"]),
        ("card", plan.card, wanted["card"]),
        ("card_key", plan.card_key, wanted["card_key"]),
        ("gpus", plan.gpus, wanted["gpus"]),
        ("host", plan.host, wanted["host"]),
    ]
    if "replicas" in wanted:
        pairs.append(("replicas", plan.replicas, wanted["replicas"]))
    if "nodes" in wanted:
        pairs.append(("nodes", plan.nodes, wanted["nodes"]))
    for name in ("name", "device", "version_source", "model_source"):
        if name in wanted:
            pairs.append((name, getattr(plan, name), wanted[name]))
    for name, got, want in pairs:
        if got != want:
            found.append(f"{name}: {got!r}, expected {want!r}")
    inputs = {own_name(tool, name): value for name, value in wanted["inputs"].items()}
    for name, want in inputs.items():
        if name not in plan.inputs:
            if _DEFAULTS.get(name) != want and plan.defaults.get(name) != want:
                found.append(f"{name} is missing, expected {want!r}")
        elif not same(plan.inputs[name].value, want):
            found.append(f"{name}: {plan.inputs[name].value!r}, expected {want!r}")
        elif plan.inputs[name].line < 1:
            found.append(f"{name} has no line")
    for name, value in plan.inputs.items():
        if name not in inputs and _DEFAULTS.get(name) != value.value:
            found.append(f"{name}: {value.value!r} was not expected")
    return found


def own_name(tool: str, name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _OWN.get(tool, {}).get(name, name)


def same(got: Any, want: Any) -> bool:
    if isinstance(got, bool) or isinstance(want, bool):
        return got is want
    if isinstance(got, int | float) and isinstance(want, int | float):
        return abs(got - want) <= 1e-9 * max(1.0, abs(want))
    if isinstance(got, list) and isinstance(want, list):
        return sorted(map(str, got)) == sorted(map(str, want))
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[key], want[key]) for key in got)
    return bool(got == want)


_STOP = set(
    [
        "the",
        "a",
        "an",
        "of",
        "is",
        "are",
        "and",
        "or",
        "to",
        "in",
        "on",
        "by",
        "with",
        "for",
        "it",
        "its",
        "that",
        "this",
        "which",
        "from",
        "as",
        "be",
        "may",
        "not",
        "no",
        "does",
        "at",
        "not",
    ]
)


def words(text: str) -> set[str]:
    found = {one.strip(".,").lower().removesuffix("s") for one in re.findall(r"[A-Za-z0-9_$@./%{}-]+", text)}
    return {one for one in found if len(one) > 1} - _STOP


def named(wanted: str, said: list[str]) -> bool:
    """The first thing that is wanted, up to a colon or a bracket, stands in what was said."""
    head = re.split(r"[:(]", wanted)[0].strip()
    text = " | ".join(said).lower()
    telling = words(head) or {head.lower()}
    return sum(one in text for one in telling) >= max(1, round(0.6 * len(telling)))


def noted(wanted: str, said: list[str]) -> bool:
    """Half of the telling words of a note stand in what was said."""
    text = " | ".join(said).lower()
    telling = words(wanted)
    return sum(one in text for one in telling) >= max(1, round(0.5 * len(telling)))
