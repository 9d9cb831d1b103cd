"""A server's words to a plan: what all engines share, with the hooks of each in its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_map, read_yaml
from planner.launches.engines.options import Given, Option, options, put_dotted, read_value
from planner.launches.record import LaunchPlan, Value
from planner.launches.secrets import is_secret_name
from planner.launches.shell.expansion import Argument, Variable


def start_plan(context: Context, engine: str, around: Surroundings, environment: Mapping[str, Variable]) -> LaunchPlan:
    """A plan with what stands around the command, before its own words."""
    plan = LaunchPlan(kind="serve", tool=engine, name=around.name, replicas=around.replicas, host=dict(around.host))
    plan.version, plan.version_source = around.version, around.version_source
    if plan.version is None and engine in context.versions:
        plan.version, plan.version_source = context.versions[engine]
    plan.card, plan.card_key, plan.device = around.card, around.card_key, around.device
    for name, variable in environment.items():
        context.secrets.keep(name, variable.text)
    plan.environment = tuple(sorted(environment))[:100]
    return plan


def read_given(
    context: Context, plan: LaunchPlan, given: Sequence[Given], *, file: str | None = None, how: str = "stated"
) -> dict[str, Given]:
    """Put the options with memory inputs into the plan; gives those with another role, by role."""
    others: dict[str, Given] = {}
    place = file if file is not None else context.file
    seen: dict[str, str] = {}
    for one in given:
        option = one.option
        if option is None:
            _keep_secret(context, one)
            continue
        if option.name in seen and not one.path and seen[option.name] != _raw(one):
            context.launch.note(f"{one.spelled} is given twice: the last one (line {one.line}) wins")
        seen[option.name] = _raw(one)
        if option.role == "model":
            others["model"] = one
        elif option.role in ("input", "capture", "compilation"):
            _put(context, plan, option, one, place, how)
        else:
            others[option.role if option.role not in ("note", "pass", "alias", "none") else option.name] = one
            if option.role == "note":
                context.launch.note(f"{one.spelled} touches memory and is not an input here: not planned")
            elif option.role == "alias":
                context.launch.note(f"{one.spelled} is an alias, not the model")
            elif option.role == "pass":
                _pass(context, plan, option, one, place)
    return others


def _pass(context: Context, plan: LaunchPlan, option: Option, one: Given, place: str) -> None:
    """Options that the engine's planner may take, note or refuse itself; the text goes to it as it stands."""
    value = one.values[0] if one.values else None
    if value is not None and value.missing:
        context.missing(value, one.spelled)
        return
    text = value.text if value is not None else ""
    plan.further[option.name] = Value(context.secrets.clean(text), one.line, place)
    context.launch.note(
        f"{one.spelled} changes memory or the model's config: it is handed on as given, not an input here"
    )


def _raw(one: Given) -> str:
    return " ".join(value.text for value in one.values) + str(one.negated)


def _keep_secret(context: Context, one: Given) -> None:
    if is_secret_name(one.spelled):
        for value in one.values:
            context.secrets.keep(one.spelled, value.text)


def _put(context: Context, plan: LaunchPlan, option: Option, one: Given, place: str, how: str) -> None:
    value = one.values[-1] if one.values else None
    missing = [v for v in one.values if v.missing]
    if missing:
        for word in missing:
            context.missing(word, one.spelled)
        context.launch.skip(f"{one.spelled} {missing[0].text} (line {one.line})", matters=True)
        plan.open.append(option.name)
        return
    if how == "stated" and value is not None:
        how = value.how
    if one.negated:
        plan.inputs[option.name] = Value(False, one.line, place, how)
        return
    if option.kind in ("switch", "bool", "onoff") and value is None:
        plan.inputs[option.name] = Value("on" if option.kind == "onoff" else True, one.line, place, how)
        return
    if value is None:
        context.launch.need(one.spelled, f"line {one.line} gives it no value")
        return
    if option.kind == "ints":
        read: Any = [n for v in one.values for n in read_value("ints", v.text, name=one.spelled, line=one.line)]
    elif one.path and not value.text.startswith(("{", "[")):
        read = read_value("json", value.text, name=one.spelled, line=one.line) if "," not in value.text else value.text
    else:
        read = read_value(option.kind, value.text, name=one.spelled, line=one.line)
    if option.role == "capture":
        if read:
            plan.inputs["max-cudagraph-capture-size"] = Value(max(read), one.line, place, how)
    elif option.role == "compilation":
        _compilation(context, plan, one, read, place)
    elif one.path:
        put_dotted(plan.inputs, option.name, one.path, read, one.line, place)
    else:
        plan.inputs[option.name] = Value(read, one.line, place, how)


def _compilation(context: Context, plan: LaunchPlan, one: Given, read: Any, place: str) -> None:
    """The one part of a compilation config that is an input: the batches that are captured as graphs."""
    config: dict[str, Value] = {}
    if one.path:
        put_dotted(config, "it", one.path, read, one.line, place)
        read = config["it"].value
    found = read if isinstance(read, dict) else {}
    sizes = found.get("cudagraph_capture_sizes")
    if isinstance(sizes, str):
        sizes = read_value("ints", sizes, name=one.spelled, line=one.line)
    largest = found.get("max_cudagraph_capture_size")
    if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
        plan.inputs["max-cudagraph-capture-size"] = Value(max(sizes), one.line, place)
    elif isinstance(largest, int):
        plan.inputs["max-cudagraph-capture-size"] = Value(largest, one.line, place)
    rest = sorted(set(found) - {"cudagraph_capture_sizes", "max_cudagraph_capture_size"})
    if rest:
        context.launch.note(f"{one.spelled}: {', '.join(str(name)[:40] for name in rest)[:120]} is not an input here")


def from_environment(context: Context, plan: LaunchPlan, environment: Mapping[str, Variable]) -> None:
    """Inputs that the tool reads from its environment, where the command line does not say them."""
    for option in options(plan.tool):
        variable = environment.get(option.environment) if option.environment else None
        if variable is None or option.role != "input" or option.name in plan.inputs:
            continue
        argument = Argument(variable.text, variable.line, variable.how, variable.missing)
        _put(
            context,
            plan,
            option,
            Given(option, option.environment, (argument,), variable.line),
            context.file,
            "environment",
        )


def config_given(context: Context, tool: str, text: str, line: int, file: str) -> tuple[list[Given], Map]:
    """The options that a YAML file of flags holds (vLLM's and SGLang's --config), and the file itself."""
    documents = read_yaml(text, form=f"{tool}-config", first_line=line)
    return map_given(tool, as_map(documents[0] if documents else None)), as_map(documents[0] if documents else None)


def map_given(tool: str, config: Mapping[str, Any]) -> list[Given]:
    """A flat mapping of option names as options: true is a flag, false its opposite, a map JSON, a list its words."""
    import json

    given: list[Given] = []
    table = {
        spelling.lstrip("-").replace("-", "_"): option for option in options(tool) for spelling in option.spellings
    }
    for key, value in config.items():
        line = config.line_of(key) if isinstance(config, Map) else 1
        option = table.get(str(key).replace("-", "_"))
        spelled = str(key)[:60]
        if value is None:
            continue
        raw = config.raw.get(key) if isinstance(config, Map) else None
        if isinstance(value, bool):
            given.append(Given(option, spelled, (), line, negated=not value))
        elif isinstance(value, dict):
            given.append(Given(option, spelled, (Argument(json.dumps(value), line),), line))
        elif isinstance(value, list):
            given.append(Given(option, spelled, tuple(Argument(str(one), line) for one in value), line))
        else:
            text = (
                raw
                if raw is not None and option is not None and option.kind in ("human", "length", "text")
                else str(value)
            )
            given.append(Given(option, spelled, (Argument(text, line),), line))
    return given
