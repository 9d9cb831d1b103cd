"""llama-swap's YAML: macros, a command a model, groups that may run together (config.example.yaml)."""

from __future__ import annotations

import re

from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, text_of
from planner.launches.record import LaunchPlan
from planner.launches.shell.commands import read_shell
from planner.launches.shell.expansion import Variable

_MACRO = re.compile(r"\$\{([\w.-]+)\}")
_DEEPEST = 10


def read_llama_swap(context: Context, config: Map) -> None:
    """A plan for each model; which of them stand on a card at once is said."""
    shared = {str(key): text_of(value) or "" for key, value in as_map(config.get("macros")).items()}
    by_name: dict[str, list[LaunchPlan]] = {}
    for name, item in as_map(config.get("models")).items():
        model = as_map(item)
        own = {str(key): text_of(value) or "" for key, value in as_map(model.get("macros")).items()}
        macros = {**shared, **own, "PORT": "8080", "MODEL_ID": str(name)}
        command = text_of(model.get("cmd")) or ""
        if not command:
            context.launch.note(f"{name}: no cmd")
            continue
        kept = [line if not line.lstrip().startswith("#") else "" for line in command.split("\n")]
        first = model.line_of("cmd") + (1 if "\n" in model.raw.get("cmd", "") else 0)
        text = _filled(context, " \\\n".join(kept) if len(kept) > 1 else command, macros)
        environment: dict[str, Variable] = {}
        for entry in as_list(model.get("env")):
            key, equals, value = (text_of(entry) or "").partition("=")
            if equals:
                environment[key] = Variable(_filled(context, value, macros), model.line_of("env"))
                context.secrets.keep(key, value)
        before = len(context.launch.plans)
        read_shell(
            context,
            text.rstrip("\\ \n"),
            first_line=first,
            around=Surroundings(name=str(name)),
            environment=environment,
        )
        by_name[str(name)] = context.launch.plans[before:]
    _say_groups(context, config, by_name)


def _filled(context: Context, text: str, macros: dict[str, str]) -> str:
    for _ in range(_DEEPEST):
        changed = _MACRO.sub(lambda m: _macro(context, m, macros), text)
        if changed == text or len(changed) > 100_000:
            return text
        text = changed
    return text


def _macro(context: Context, found: re.Match[str], macros: dict[str, str]) -> str:
    name = found[1]
    if name in macros:
        return " ".join(macros[name].split())
    if name.startswith("env."):
        return context.settings.values.get(name[4:], f"${{{name[4:]}}}")
    return found[0]


def _say_groups(context: Context, config: Map, by_name: dict[str, list[LaunchPlan]]) -> None:
    together = [
        [str(member) for member in as_list(as_map(group).get("members"))]
        for group in as_map(config.get("groups")).values()
        if as_map(group).get("swap") is False
    ]
    for plan in as_map(config.get("matrix")).get("sets") or []:
        together.append([str(one) for one in (plan if isinstance(plan, list) else as_list(as_map(plan).get("models")))])
    for members in together:
        listed = ", ".join(members)[:200]
        context.launch.note(f"swap: false lets {listed} run at the same time: what they take on one device adds up")
        for name in members:
            for one in by_name.get(name, []):
                one.beside = tuple(other for other in members if other != name)
    if len(by_name) > 1:
        context.launch.note(
            "without a group that allows it llama-swap runs one model at a time: the largest counts, not the sum"
        )
