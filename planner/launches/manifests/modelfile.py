"""Ollama's Modelfile, and a Dockerfile's CMD and ENTRYPOINT."""

from __future__ import annotations

import json
import re

from planner.launches.context import Context, Surroundings
from planner.launches.engines.options import Given, options
from planner.launches.engines.server import read_given, start_plan
from planner.launches.engines.settling import settle_model
from planner.launches.record import LaunchPlan
from planner.launches.shell.commands import start_image
from planner.launches.shell.expansion import Argument, Variable

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)


def read_modelfile(context: Context, text: str) -> None:
    """The model that a Modelfile describes."""
    plan = start_plan(context, "ollama", Surroundings(), {})
    found = read_instructions(context, plan, text, 1, context.file)
    if found is not None:
        context.add(found)


def read_instructions(context: Context, plan: LaunchPlan, text: str, first_line: int, file: str) -> LaunchPlan | None:
    """FROM, ADAPTER and PARAMETER of a Modelfile; text in triple quotes is data."""
    table = {option.name: option for option in options("ollama")}
    given: list[Given] = []
    base: Argument | None = None
    for line, word, rest in _instructions(text, first_line):
        if word == "FROM":
            base = Argument(rest.strip().strip('"'), line)
        elif word == "ADAPTER":
            context.launch.note("ADAPTER brings an adapter: its weights come on top")
        elif word == "PARAMETER":
            name, _, value = rest.strip().partition(" ")
            option = table.get(name)
            if option is not None:
                given.append(Given(option, name, (Argument(value.strip().strip('"'), line),), line))
    read_given(context, plan, given, file=file)
    if not settle_model(context, plan, base, Surroundings()):
        return None
    context.launch.note(
        "parallel requests and the cache type are settings of the server (OLLAMA_NUM_PARALLEL,"
        " OLLAMA_KV_CACHE_TYPE), not"
        " stated here"
    )
    if "num_gpu" in plan.inputs:
        context.launch.note("num_gpu is a number of layers, not of GPUs")
    return plan


def _instructions(text: str, first_line: int) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        line, start = lines[index], index + first_line
        index += 1
        match = _INSTRUCTION.fullmatch(line)
        if line.lstrip().startswith("#") or match is None:
            continue
        if line.count('"""') % 2:
            while index < len(lines) and lines[index].count('"""') % 2 == 0:
                index += 1
            index += 1
        found.append((start, match[1].upper(), match[2]))
    return found


def read_dockerfile(context: Context, text: str) -> None:
    """The last stage's ENTRYPOINT and CMD, with its ENV."""
    image, environment = "", dict[str, Variable]()
    entrypoint: list[Argument] = []
    command: list[Argument] = []
    joined = re.sub(r"\\\n", lambda m: " \v", text)
    line = 1
    for raw in joined.split("\n"):
        match = _INSTRUCTION.fullmatch(raw.replace("\v", " "))
        here = line
        line += 1 + raw.count("\v")
        if match is None or raw.lstrip().startswith("#"):
            continue
        word, rest = match[1].upper(), match[2].strip()
        if word == "FROM":
            image = rest.split(" ")[0]
            environment, entrypoint, command = {}, [], []
        elif word in ("ENV", "ARG"):
            for name, value in re.findall(r"([A-Za-z_]\w*)=(\"[^\"]*\"|\S*)", rest):
                environment[name] = Variable(value.strip('"'), here)
                context.secrets.keep(name, value)
        elif word == "RUN":
            from planner.launches.shell.wrappers import state_version

            for requirement in re.findall(r"[A-Za-z0-9_.-]+==[0-9][\w.]*", rest):
                state_version(context, requirement, "pip install line")
        elif word == "ENTRYPOINT":
            entrypoint, command = _exec_form(rest, here), []
        elif word == "CMD":
            command = _exec_form(rest, here)
    around = Surroundings()
    from planner.launches.around import image_engine

    _, version, _ = image_engine(image)
    if version is not None:
        around.version, around.version_source = version, "image tag"
    start_image(context, image, [*entrypoint, *command], environment, around, contained=True, replaced=bool(entrypoint))


def _exec_form(text: str, line: int) -> list[Argument]:
    if text.startswith("["):
        try:
            return [Argument(str(one), line) for one in json.loads(text)]
        except ValueError:
            pass
    return [Argument("sh", line), Argument("-c", line), Argument(text, line)]
