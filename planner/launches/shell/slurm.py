"""Variables that Slurm sets from a script's directives."""

from __future__ import annotations

from typing import Any

from planner.launches.context import Surroundings


def slurm_environment(words: list[str], around: Surroundings) -> dict[str, Any]:
    from planner.launches.shell.expansion import Variable

    found: dict[str, Any] = {}
    nodes = around.nodes or 1
    found["SLURM_NNODES"] = found["SLURM_JOB_NUM_NODES"] = Variable(str(nodes), 1, "#SBATCH")
    if around.gpus:
        found["SLURM_GPUS_ON_NODE"] = found["SLURM_GPUS_PER_NODE"] = Variable(
            str(max(1, around.gpus // nodes)), 1, "#SBATCH"
        )
    tasks = next((w.partition("=")[2] for w in words if w.startswith("--ntasks-per-node=")), "")
    if tasks.isdecimal():
        found["SLURM_NTASKS_PER_NODE"] = Variable(tasks, 1, "#SBATCH")
        found["SLURM_NTASKS"] = Variable(str(int(tasks) * nodes), 1, "#SBATCH")
    return found
