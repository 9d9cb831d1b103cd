"""A run with what its launcher, scheduler and environment say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.launches.around import device_count
from planner.launches.context import Context, Surroundings
from planner.launches.record import Value
from planner.launches.shell.expansion import Variable
from planner.launches.trainers import frameworks
from planner.launches.trainers.accelerate import apply_accelerate
from planner.launches.trainers.recipe import Run


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
    if processes is None and local is not None and local.text.isdecimal():
        nnodes = environment.get("NNODES")
        spread.nodes = int(nnodes.text) if nnodes is not None and nnodes.text.isdecimal() else spread.nodes
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
