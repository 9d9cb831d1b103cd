"""Trainers' files by themselves: the number of GPUs is that of their launch."""

from __future__ import annotations

from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map
from planner.launches.record import Value
from planner.launches.trainers import accelerate
from planner.launches.trainers.completing import Spread, complete
from planner.launches.trainers.fields import SETTLES
from planner.launches.trainers.programs import axolotl, llamafactory, torchtune, trl
from planner.launches.trainers.recipe import Run
from planner.launches.trainers.spread import apply_deepspeed, read_fsdp


def read_file(context: Context, form: str, node: Map) -> None:
    if form == "accelerate":
        run = accelerate.read_accelerate(context, node)
    elif form == "axolotl":
        run = axolotl.read_config(context, node)
    elif form == "llamafactory":
        run = llamafactory.read_config(context, node)
    elif form == "torchtune":
        run = torchtune.read_config(context, node)
    elif form == "trl":
        run = trl.read_yaml_file(context, node)
    else:
        run = _spread_only(context, form, node)
    spread = Spread(unknown=True)
    nodes, gpus = run.plan.nodes, run.plan.gpus
    complete(context, run, spread, {}, Surroundings())
    run.plan.nodes = max(nodes, run.plan.nodes)
    run.plan.gpus = run.processes if run.processes is not None else gpus
    if gpus == 1 and run.processes is None:
        context.launch.notes[:] = [note for note in context.launch.notes if "what the launcher finds" not in note]


def _spread_only(context: Context, form: str, node: Map) -> Run:
    """A DeepSpeed or FSDP file by itself: how memory is shared, never what is trained."""
    run = Run(context, "transformers")
    run.states_method = False
    if form == "deepspeed":
        apply_deepspeed(run, node, Value(None, 0, context.file))
    else:
        run.fields["fsdp_config"] = Value(node, 1, context.file)
        read_fsdp(run, Value(None, 1, context.file))
    wanted = ["model", "sequence length", "method"]
    if "per-device-train-batch-size" not in run.plan.inputs:
        wanted.append("batch size")
    for name in wanted:
        context.launch.need(name, "such a file never says it", settle=SETTLES[name])
    return run
