"""Commands that start training: launchers and the number of GPUs they give, then the trainer behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from planner.launches.around import device_count
from planner.launches.context import Context, Surroundings
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.wrappers import base, skip_options, unwrap
from planner.launches.trainers import frameworks
from planner.launches.trainers.arguments import flag_words
from planner.launches.trainers.completing import Spread, complete
from planner.launches.trainers.fields import SETTLES
from planner.launches.trainers.recipe import Run

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
    elif per_node.text.isdecimal():
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
