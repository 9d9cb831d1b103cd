"""A question as a browser or a program puts it: names and values of the declared inputs, answered as the command is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from planner.contract.engine import Engine, engine_names, find_engine
from planner.contract.inputs import Input, inputs_of, plain, switched_off
from planner.contract.parser import dashed, parse
from planner.contract.plan import ServingPlan
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.model.load import load_model

_MOST_VALUES: Final = 100
_LONGEST_VALUE: Final = 4096
# what a model may be called here: nothing that could be a path of the machine
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[\w.+-]+)?(?::[\w.+-]+)?")
# a value in JSON that could be a path: it begins with one of these signs, or climbs
_PATH_IN_JSON: Final = re.compile(r"""["']\s*(?:[/~.\\]|[A-Za-z]:)|\.\.|\\u""")
_DRAFT_PATHS: Final = ("speculative-draft-model-path", "speculative-draft-model")
# read files of the machine
_CLOSED: Final = frozenset(
    {"config", "lora-modules", "mmproj", "model-draft", "speculative-draft-model-path", "speculative-draft-model"}
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan, the engine that made it, and the workload it is for."""

    engine: Engine
    plan: ServingPlan


def answer(values: Mapping[str, Any]) -> Answer:
    """The plan of a question: "model", "engine", and inputs under their own names.

    Raises:
        PlannerError: as the command line, and for a model that is not named but a path.
    """
    if len(values) > _MOST_VALUES:
        raise UsageError(f"{len(values)} values; at most {_MOST_VALUES} are read", field="question")
    engine = find_engine(str(values.get("engine") or "vllm"))
    name = str(values.get("model") or "")
    if not _NAME.fullmatch(name) or ".." in name:
        raise UsageError("model: give a bundled name, such as Qwen/Qwen3-8B", field="model")
    words = [word for key, value in values.items() for word in _words(engine, str(key), value)]
    parsed = parse((engine.Deployment, Workload), words, other=engine.takes, environment={})
    deployment = engine.deployment(parsed)
    return Answer(engine, engine.plan(load_model(name), deployment, parsed.record(Workload)))


def _words(engine: Engine, key: str, value: Any) -> list[str]:
    name = dashed(f"--{key}")[2:]
    if name in ("model", "engine") or value is None or value == "":
        return []
    if name in _CLOSED:
        raise UsageError(f"{name}: files of the machine are not read here", field=name)
    text = str(value)
    if name == "speculative-config" and re.search(_PATH_IN_JSON, text):
        raise UsageError(
            "speculative-config: name the draft model; files are not read here", field="speculative_config"
        )
    if len(text) > _LONGEST_VALUE:
        raise UsageError(f"{name}: longer than {_LONGEST_VALUE:,} characters", field=name)
    one = _declared(engine).get(name)
    if one is not None and one.is_switch and isinstance(value, bool):
        return [one.spelling if value else switched_off(one)]
    return [f"--{name}={text}"]


def _declared(engine: Engine) -> dict[str, Input]:
    found = {}
    for record in (engine.Deployment, Workload):
        for one in inputs_of(record):
            for spelling in one.spellings:
                found[dashed(spelling).lstrip("-")] = one
    return found


def described() -> list[dict[str, object]]:
    """Every engine with its inputs, for forms: name, help, panel, default, choices, whether it is a switch."""
    return [
        {
            "name": name,
            "title": find_engine(name).title,
            "length": find_engine(name).axes.length,
            "inputs": [
                {
                    "name": dashed(one.spelling).lstrip("-"),
                    "field": one.name,
                    "help": one.option.help,
                    "panel": one.option.panel,
                    "common": one.option.common,
                    "switch": one.is_switch,
                    "choices": list(one.option.choices),
                    "default": plain(one.default),
                }
                for record in (find_engine(name).Deployment, Workload)
                for one in inputs_of(record)
                if dashed(one.spelling).lstrip("-") not in _CLOSED
            ],
        }
        for name in engine_names()
    ]
