"""Programs that start a server, by name or as a Python module; installers and downloads beside them."""

from __future__ import annotations

from typing import Final

from planner.launches.context import Context, Surroundings
from planner.launches.engines.llama_cpp import read_llama
from planner.launches.engines.others import read_sglang, read_trtllm
from planner.launches.engines.server import start_plan
from planner.launches.engines.vllm import read_vllm
from planner.launches.record import LaunchPlan
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.script import Command
from planner.launches.shell.wrappers import base, state_version
from planner.launches.trainers.launchers import read_training

Words = list[Argument]


Environment = dict[str, Variable]


_INSTALLERS: Final = ("pip", "pip3", "uv", "conda", "mamba", "poetry", "pipx")


LLAMA: Final = {
    "llama-server": None,
    "llama-cli": None,
    "llama-run": None,
    "koboldcpp": "koboldcpp",
    "koboldcpp.py": "koboldcpp",
    "llama-server-ik": "ik_llama.cpp",
}


# Engines that are told apart and that no release of the planner plans.
NAMED: Final = {
    "text-generation-launcher": "tgi",
    "lmdeploy": "lmdeploy",
    "mlc_llm": "mlc-llm",
    "tritonserver": "triton",
}


def gather(context: Context, command: Command) -> None:
    """Versions of pip lines, and models that are downloaded to a folder."""
    texts = [word.text for word in command.words]
    if base(texts[0]) in (*_INSTALLERS, "python", "python3") and "install" in texts[:5] + ["install"] * (
        texts[1:2] == ["add"]
    ):
        for text in texts[2:]:
            state_version(context, text, "pip install line")
    download_of(context, texts)


def download_of(context: Context, texts: list[str]) -> None:
    """`hf download REPO --local-dir DIR` and its likes: the model that a folder will hold."""
    if len(texts) < 3:
        return
    name = base(texts[0])
    start = 2 if (name in ("hf", "huggingface-cli", "modelscope") and texts[1] == "download") else None
    if name == "ollama" and texts[1] == "pull":
        context.downloads[texts[2]] = texts[2]
        return
    if start is None:
        return
    repository = folder = None
    index = start
    while index < len(texts):
        head, equals, value = texts[index].partition("=")
        if head in (
            "--local-dir",
            "--local_dir",
            "--cache-dir",
            "--revision",
            "--include",
            "--exclude",
            "--token",
            "--model",
        ):
            value = value if equals else texts[index + 1] if index + 1 < len(texts) else ""
            index += 0 if equals else 1
            folder = value.rstrip("/") if head in ("--local-dir", "--local_dir") else folder
            repository = value if head == "--model" else repository
        elif not texts[index].startswith("-") and repository is None:
            repository = texts[index]
        index += 1
    if repository and folder:
        context.downloads[folder] = repository


def keep(context: Context, plan: LaunchPlan | None) -> None:
    """Keep what a reader found."""
    if plan is not None:
        context.add(plan)


def start_llama(context: Context, name: str, rest: Words, environment: Environment, around: Surroundings) -> None:
    variant = "koboldcpp" if name.startswith("koboldcpp") else LLAMA.get(name)
    keep(context, read_llama(context, rest, environment, around, variant=variant))


def start_named(
    context: Context, engine: str, rest: Words, environment: Environment, around: Surroundings
) -> LaunchPlan | None:
    """An engine that is only named: its model, so that people see what was read."""
    model = None
    for index, word in enumerate(rest):
        head, equals, value = word.text.partition("=")
        if head in ("--model-id", "--model", "--model-path") and (equals or index + 1 < len(rest)):
            model = value if equals else rest[index + 1].text
    plan = start_plan(context, engine, around, environment)
    plan.model, plan.gpus = model, around.gpus
    if model is None:
        context.launch.need("model", "none is stated", settle="model")
    return plan


def start_module(context: Context, module: str, rest: Words, environment: Environment, around: Surroundings) -> None:
    if module in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "dynamo.vllm"):
        keep(context, read_vllm(context, rest, environment, around, positional_model=False))
    elif module == "vllm.entrypoints.cli.main" and rest[:1] and rest[0].text == "serve":
        keep(context, read_vllm(context, rest[1:], environment, around))
    elif module in ("sglang.launch_server", "dynamo.sglang"):
        keep(context, read_sglang(context, rest, environment, around))
    elif module == "dynamo.trtllm":
        moved = [Argument(word.text, word.line, word.how, word.missing) for word in rest]
        model = next((i for i, word in enumerate(moved) if word.text in ("--model-path", "--model")), None)
        if model is not None and model + 1 < len(moved):
            moved = [moved[model + 1], *moved[:model], *moved[model + 2 :]]
        keep(context, read_trtllm(context, moved, environment, around))
    elif module in ("tensorrt_llm.commands.serve",):
        keep(context, read_trtllm(context, rest, environment, around))
    elif module == "llama_cpp.server":
        context.launch.note("llama_cpp.server spells its options in its own way: only the shared ones are read")
        keep(context, read_llama(context, rest, environment, around))
    else:
        read_training(
            context,
            [Argument("python", 0), Argument("-m", 0), Argument(module, rest[0].line if rest else 0), *rest],
            environment,
            around,
        )
