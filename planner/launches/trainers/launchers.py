"""Commands that start training: launchers and the number of GPUs they give, then the trainer behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from planner.launches.around import device_count
from planner.launches.context import Context, Surroundings
from planner.launches.record import Value
from planner.launches.shell.script import Argument, Variable
from planner.launches.shell.wrappers import base, skip_options, unwrap
from planner.launches.trainers import frameworks
from planner.launches.trainers.accelerate import apply_accelerate
from planner.launches.trainers.arguments import flag_words
from planner.launches.trainers.recipe import SETTLES, Run

# Options of a launcher that stand alone; every other one takes a word.
_TORCHRUN_ALONE: Final = (
    "--standalone",
    "--no-python",
    "--no_python",
    "-m",
    "--module",
    "--run-path",
    "--run_path",
    "--use-env",
    "--use_env",
    "--use-libuv",
)
_ACCELERATE_ALONE: Final = (
    "--multi_gpu",
    "--use_fsdp",
    "--use_deepspeed",
    "--cpu",
    "--tpu",
    "--use_xpu",
    "--quiet",
    "-q",
    "-m",
    "--module",
    "--no_python",
    "--debug",
    "--use_megatron_lm",
    "--same_network",
    "--enable_cpu_affinity",
    "--mps",
    "--use_mps_device",
    "--use_tp",
)
_DEEPSPEED_ALONE: Final = (
    "--force_multi",
    "--no_local_rank",
    "--no_python",
    "--module",
    "-m",
    "--save_pid",
    "--no_ssh",
    "--no_ssh_check",
    "--enable_each_rank_log",
    "--bind_cores_to_rank",
    "--elastic_training",
)
_PYTHON_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")


@dataclass(slots=True)
class Spread:
    """How a launcher spreads a run: processes in total, nodes, and what it sets for the trainer."""

    processes: int | None = None
    per_node: int | None = None
    nodes: int = 1
    unknown: bool = False
    line: int = 1
    fields: dict[str, Value] = field(default_factory=dict)
    config: str | None = None
    launcher: str = ""


def read_training(
    context: Context, words: list[Argument], environment: Mapping[str, Variable], around: Surroundings
) -> None:
    """The run that these words start, if they start one."""
    spread = Spread(line=words[0].line or (words[-1].line if words else 1))
    if around.nodes:
        spread.nodes = around.nodes
    module = False
    for _ in range(6):
        name = base(words[0].text) if words else ""
        if name == "torchrun":
            words, module = _torchrun(context, words[1:], spread)
        elif re.fullmatch(r"python[0-9.]*", name):
            rest = words[1:]
            count = skip_options(rest, ("-X", "-W"))
            module = any(word.text == "-m" for word in rest[:count])
            words = rest[count:]
            if module and words and words[0].text in _PYTHON_MODULES:
                words, module = _torchrun(context, words[1:], spread)
            elif module and words and words[0].text in ("accelerate.commands.launch", "accelerate"):
                words = [Argument("accelerate", words[0].line), Argument("launch", words[0].line), *words[1:]]
                module = False
                continue
            else:
                break
        elif name == "accelerate" and words[1:2] and words[1].text == "launch":
            words, module = _accelerate(context, words[2:], spread)
        elif name == "deepspeed":
            words, module = _deepspeed(context, words[1:], spread)
        else:
            break
        if module:
            break
        inner = dict(environment)
        words = unwrap(context, words, inner, around)
        if not words:
            return
    if not words:
        return
    started = frameworks.read_command(context, words, module=module, environment=environment)
    if started is None:
        if spread.launcher:
            _unknown_script(context, words, spread, environment, around)
        return
    for run in started:
        complete(context, run, spread, environment, around)


def _number(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def _torchrun(context: Context, words: list[Argument], spread: Spread) -> tuple[list[Argument], bool]:
    spread.launcher = "torchrun"
    options, rest, module = flag_words(words, _TORCHRUN_ALONE)
    spread.line = words[0].line if words else spread.line
    per_node, nodes = options.get("nproc_per_node"), options.get("nnodes")
    if nodes is not None:
        if ":" in nodes.text:
            context.launch.note(f"--nnodes {nodes.text} is elastic: the smallest number is planned")
        spread.nodes = _number(nodes.text) or spread.nodes
        if nodes.missing:
            context.missing(nodes, "--nnodes")
    if per_node is None:
        spread.per_node = 1
    elif per_node.text.isdigit():
        spread.per_node = int(per_node.text)
    else:
        spread.unknown = True
        if per_node.missing:
            context.missing(per_node, "--nproc_per_node")
    if spread.per_node is not None:
        spread.processes = spread.per_node * spread.nodes
    return rest, module


def _accelerate(context: Context, words: list[Argument], spread: Spread) -> tuple[list[Argument], bool]:
    spread.launcher = "accelerate"
    options, rest, module = flag_words(words, _ACCELERATE_ALONE)
    spread.line = words[0].line if words else spread.line
    config = options.pop("config_file", None)
    if config is not None:
        spread.config = config.text
    for name, word in options.items():
        if name == "num_processes":
            spread.processes = _number(word.text)
            if word.missing:
                spread.unknown = True
                context.missing(word, "--num_processes")
        elif name == "num_machines":
            spread.nodes = _number(word.text) or 1
        elif name == "gpu_ids" and spread.processes is None:
            spread.processes, _ = device_count(word.text)
        else:
            spread.fields[name] = Value(word.text, word.line, context.file)
    return rest, module


def _deepspeed(context: Context, words: list[Argument], spread: Spread) -> tuple[list[Argument], bool]:
    spread.launcher = "deepspeed"
    options, rest, module = flag_words(words, _DEEPSPEED_ALONE)
    spread.line = words[0].line if words else spread.line
    nodes, gpus, include = options.get("num_nodes"), options.get("num_gpus"), options.get("include") or options.get("i")
    if nodes is not None:
        spread.nodes = _number(nodes.text) or 1
    if gpus is not None:
        spread.per_node = _number(gpus.text)
        spread.unknown = spread.per_node is None
        spread.processes = spread.per_node * spread.nodes if spread.per_node else None
    elif include is not None:
        hosts = [part for part in include.text.split("@") if part]
        counted = [len(host.partition(":")[2].split(",")) for host in hosts if ":" in host]
        if len(counted) == len(hosts):
            spread.processes, spread.nodes = sum(counted), len(hosts)
        else:
            spread.unknown = True
    else:
        spread.unknown = True
        hostfile = options.get("hostfile") or options.get("H")
        if hostfile is not None:
            found = context.file_text(hostfile.text)
            slots = re.findall(r"slots=(\d+)", found[0]) if found else []
            if slots:
                spread.processes, spread.nodes, spread.unknown = sum(int(s) for s in slots), len(slots), False
            else:
                context.launch.skip(f"the hostfile {hostfile.text}", matters=True)
    return rest, module


def complete(
    context: Context, run: Run, spread: Spread, environment: Mapping[str, Variable], around: Surroundings
) -> None:
    """Put the launcher's, the scheduler's and the environment's share into a run and keep it."""
    plan = run.plan
    for name, value in spread.fields.items():
        run.fields.setdefault(name, value)
    if spread.config is not None:
        _config_file(context, run, spread)
    else:
        apply_accelerate(run, spread.fields, from_file=False)
    processes = run.processes if run.processes is not None else spread.processes
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    count = device_count(visible.text)[0] if visible is not None and not visible.missing else None
    local = environment.get("NPROC_PER_NODE")
    if processes is None and local is not None and local.text.isdigit():
        nnodes = environment.get("NNODES")
        spread.nodes = int(nnodes.text) if nnodes is not None and nnodes.text.isdigit() else spread.nodes
        processes = int(local.text) * spread.nodes
    forced = environment.get("FORCE_TORCHRUN")
    if processes is None and plan.tool == "llamafactory":
        processes = count or around.gpus
        spread.unknown = spread.unknown or (processes is None and forced is not None)
    if processes is None and spread.launcher == "accelerate" and spread.config is None:
        processes = count or around.gpus
        spread.unknown = processes is None
    if processes is None and spread.unknown:
        processes = count or around.gpus
    if (
        processes is None
        and not spread.unknown
        and not spread.launcher
        and plan.gpus is None
        and frameworks.single(plan.tool)
    ):
        processes = 1
        if count is not None and count > 1:
            context.launch.note(
                f"one process sees {count} devices: the Trainer would use DataParallel, which is not planned"
            )
    if processes is None and spread.unknown:
        context.launch.note("the number of GPUs is not stated: it is what the launcher finds; one is planned")
        plan.gpus = None
    if plan.gpus is None or run.processes is None:
        run.processes = processes if processes is not None else run.processes
    if processes is not None and (spread.launcher or processes > 1):
        run.fields.setdefault("processes", Value(processes, spread.line, context.file))
    alone = run.processes == 1 and not spread.launcher
    plan.nodes = max(plan.nodes, spread.nodes)
    plan.host.update(around.host)
    plan.card, plan.card_key = around.card, around.card_key
    plan.name = plan.name or around.name
    plan.device = around.device
    package = {"ms-swift": "ms-swift", "llamafactory": "llamafactory"}.get(plan.tool, plan.tool)
    if plan.version is None and package in context.versions:
        plan.version, plan.version_source = context.versions[package]
    for name, variable in environment.items():
        context.secrets.keep(name, variable.text)
        if name in ("MAX_PIXELS", "VIDEO_MAX_PIXELS", "FPS_MAX_FRAMES"):
            context.launch.note(f"{name} in the environment bounds the image tokens: not an input here")
    plan.environment = tuple(sorted(environment))[:100]
    run.finish()
    if alone:
        plan.inputs.pop("num-gpus", None)
        plan.gpus = 1
    stated = around.gpus
    if stated is not None and plan.gpus is not None and stated < plan.gpus and plan.nodes == 1:
        context.launch.error = (
            f"{plan.name or plan.tool}: {plan.gpus} processes and only {stated} GPUs are given to them"
        )
    elif stated is not None and plan.gpus is not None and stated > plan.gpus:
        context.launch.note(f"{stated} GPUs are stated and the run uses {plan.gpus}: {stated - plan.gpus} stay idle")
    context.add(plan)


def _config_file(context: Context, run: Run, spread: Spread) -> None:
    name = spread.config or ""
    found = context.file_text(name)
    if found is None:
        context.launch.skip(f"--config_file {name}", matters=True)
        context.launch.need(
            f"the accelerate file {name}", "is not here; it says how the run is spread", settle="sharding"
        )
        return
    from planner.launches.documents import as_map, read_yaml

    documents = read_yaml(found[0], form="accelerate", first_line=found[1])
    config = as_map(documents[0] if documents else None)
    stated: dict[str, Value] = {key: Value(value, config.line_of(key), found[2]) for key, value in config.items()}
    for name_, value in spread.fields.items():
        stated[name_] = value
    apply_accelerate(run, stated, from_file=True)
    if spread.processes is not None:
        run.processes = spread.processes


def _unknown_script(
    context: Context, words: list[Argument], spread: Spread, environment: Mapping[str, Variable], around: Surroundings
) -> None:
    script = words[0].text
    found = context.file_text(script) if script.endswith(".py") else None
    if found is not None:
        from planner.launches.python.reading import read_python

        started: list[Any] = []
        read_python(context, found[0], file=found[2], arguments=words[1:], collect=started)
        for run in started:
            complete(context, run, spread, environment, around)
        if started:
            return
    context.launch.skip(f"the script {script}", matters=True)
    run = Run(context, "transformers")
    run.states_method = False
    for name in ("model", "batch size", "sequence length", "method"):
        context.launch.need(name, f"stands in {script}, which is not read", settle=SETTLES[name])
    complete(context, run, spread, environment, around)
