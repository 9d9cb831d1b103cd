"""What a fine-tune holds on the card outside torch's allocator, and cuBLAS' workspaces inside it."""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component, exact
from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import Gpu
from planner.hardware.links import link_of
from planner.training.objectives.objectives import Extra
from planner.training.recipe import Recipe
from planner.units import MIB

# cuBLAS workspace, which torch takes from its own allocator on the first matrix product
# (ATen/cuda/CublasHandlePool.cpp: :4096:2:16:8 before Hopper, 32 MiB from compute capability 9.0 on).
_WORKSPACE: Final = 8_519_680
_WORKSPACE_HOPPER: Final = 32 * MIB
# NCCL's buffers of one communicator: 205 to 420 MiB over PCIe, 1045 to 1600 MiB over NVLink (vLLM start-ups).
_COMMUNICATOR: Final = {
    "nvlink": (400 * MIB, 1045 * MIB, 1600 * MIB),
    "pcie": (200 * MIB, 420 * MIB, 420 * MIB),
    "": (200 * MIB, 420 * MIB, 1600 * MIB),
}


def workspace_bytes(gpu: Gpu, *, trains: bool) -> int:
    """cuBLAS' workspaces on this card, inside torch's allocator.

    One for each handle and stream, and each thread has its own handle: autograd runs backward in another.
    Source: torch 2.11 aten/src/ATen/cuda/CublasHandlePool.cpp; both seen in a snapshot of an H200.

    Args:
        trains: there is a backward.
    """
    capability = gpu.capability
    one = _WORKSPACE_HOPPER if capability is not None and capability >= (9, 0) else _WORKSPACE
    return 2 * one if trains else one


def outside_parts(gpu: Gpu, recipe: Recipe, extra: Extra) -> tuple[Component, ...]:
    """Context, communicators and a generation engine: what torch's allocator does not hold."""
    context = cuda_context(gpu)
    parts = [
        Component(
            name="context",
            low=context.low_bytes,
            best=context.best_bytes,
            high=context.high_bytes,
            evidence="measured" if context.evidence == "measured" else "assumed",
            formula="driver context and loaded kernels of one process",
            source=context.source,
        )
    ]
    if recipe.num_gpus > 1:
        link = link_of(gpu)
        low, best, high = _COMMUNICATOR["" if link is None else link.kind]
        parts.append(
            Component(
                name="communicators",
                low=low,
                best=best,
                high=high,
                evidence="measured",
                formula="NCCL buffers of one communicator",
                source="vLLM start-ups, 2 to 4 ranks: 205 to 420 MiB over PCIe, 1045 to 1600 MiB over NVLink",
            )
        )
    if extra.outside_bytes and not extra.asleep:
        parts.append(exact("generation_engine", extra.outside_bytes, extra.outside_formula, "the recipe"))
    return tuple(parts)
