"""The largest run that fits: batch, sequence length, rank and number of GPUs, each solved for with the rest as asked.

Every answer is the planner run again: memory grows with each of the first three, so the largest that fits is found by
doubling and halving. The number of GPUs is the smallest that fits under the recipe's sharding (FSDP where none is
named).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.contract.workload import Accept
from planner.errors import PlannerError
from planner.hardware.gpus import Gpu
from planner.model.model import Model
from planner.training.plan import plan_training
from planner.training.recipe import Recipe

_LARGEST_BATCH: Final = 4096
_LARGEST_RANK: Final = 4096
_LONGEST: Final = 1 << 24
_GPUS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """What is accepted, each alone; None where nothing is or the question does not arise.

    Args:
        gradient_accumulation_steps: with that batch, what keeps the effective batch of the recipe (rounded up).
        num_gpus: the fewest that fit.
        verdicts: of each that has a number, by its name: "fits" or "tight".
    """

    per_device_train_batch_size: int | None
    gradient_accumulation_steps: int | None
    max_seq_length: int | None
    lora_rank: int | None
    num_gpus: int | None
    verdicts: Mapping[str, str]


def largest_that_fits(
    model: Model, recipe: Recipe, gpu: Gpu, *, gpu_memory_bytes: int, accept: Accept = "tight"
) -> Largest:
    """Solve for each of the four.

    Args:
        accept: the verdict that is good enough, as the exit status has it.
    """
    good = ("fits", "tight") if accept == "tight" else ("fits",)

    def verdict(changed: Recipe) -> str:
        try:
            return plan_training(model, changed, gpu, gpu_memory_bytes=gpu_memory_bytes, replays=False).verdict
        except PlannerError:
            return "refused"

    def fits(changed: Recipe) -> bool:
        return verdict(changed) in good

    batch = _largest(lambda n: fits(replace(recipe, per_device_train_batch_size=n)), _LARGEST_BATCH)
    positions = model.spec.max_position_embeddings or _LONGEST
    length = _largest(lambda n: fits(replace(recipe, max_seq_length=n)), max(positions, recipe.max_seq_length))
    rank = _largest(lambda n: fits(replace(recipe, lora_rank=n)), _LARGEST_RANK) if recipe.adapters else None
    steps = None
    if batch is not None:
        effective = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
        steps = -(-effective // batch)
    fewest = _fewest_gpus(recipe, fits)
    verdicts: dict[str, str] = {}
    if batch is not None:
        verdicts["per_device_train_batch_size"] = verdict(replace(recipe, per_device_train_batch_size=batch))
    if length is not None:
        verdicts["max_seq_length"] = verdict(replace(recipe, max_seq_length=length))
    if rank is not None:
        verdicts["lora_rank"] = verdict(replace(recipe, lora_rank=rank))
    if fewest is not None:
        verdicts["num_gpus"] = verdict(fewest)
    return Largest(
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=steps,
        max_seq_length=length,
        lora_rank=rank,
        num_gpus=fewest.num_gpus if fewest is not None else None,
        verdicts=verdicts,
    )


def _largest(fits: Callable[[int], bool], most: int) -> int | None:
    """The largest n up to `most` for which `fits(n)`, which falls from true to false once."""
    if not fits(1):
        return None
    low = 1
    while low < most and fits(min(2 * low, most)):
        low = min(2 * low, most)
    if low >= most:
        return most
    high = min(2 * low, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fewest_gpus(recipe: Recipe, fits: Callable[[Recipe], bool]) -> Recipe | None:
    sharding = recipe.sharding if recipe.sharding not in (None, "none", "ddp") else "fsdp"
    ways = recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.context_parallel_size
    for count in _GPUS:
        if count % ways:
            continue
        changed = replace(recipe, num_gpus=count, sharding=None if count == 1 else sharding)
        if fits(changed):
            return changed
    return None
