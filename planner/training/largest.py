"""The largest run that fits: batch, sequence length, rank and number of GPUs, each solved for with the rest as asked.

Every answer is the planner run again: memory grows with each of the first three, so the largest that fits is found by
doubling and halving. The number of GPUs is the smallest that fits under the recipe's sharding (FSDP where none is
named).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

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
    """What fits, each alone; None where nothing does or the question does not arise.

    Args:
        gradient_accumulation_steps: with that batch, what keeps the effective batch of the recipe (rounded up).
        num_gpus: the fewest that fit.
    """

    per_device_train_batch_size: int | None
    gradient_accumulation_steps: int | None
    max_seq_length: int | None
    lora_rank: int | None
    num_gpus: int | None


def largest_that_fits(model: Model, recipe: Recipe, gpu: Gpu, *, gpu_memory_bytes: int) -> Largest:
    """Solve for each of the four; "fits" is tight or better."""

    def fits(changed: Recipe) -> bool:
        try:
            plan = plan_training(model, changed, gpu, gpu_memory_bytes=gpu_memory_bytes, replays=False)
        except PlannerError:
            return False
        return plan.verdict != "does_not_fit"

    batch = _largest(lambda n: fits(replace(recipe, per_device_train_batch_size=n)), _LARGEST_BATCH)
    positions = model.spec.max_position_embeddings or _LONGEST
    length = _largest(lambda n: fits(replace(recipe, max_seq_length=n)), max(positions, recipe.max_seq_length))
    rank = _largest(lambda n: fits(replace(recipe, lora_rank=n)), _LARGEST_RANK) if recipe.adapters else None
    steps = None
    if batch is not None:
        effective = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
        steps = -(-effective // batch)
    return Largest(
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=steps,
        max_seq_length=length,
        lora_rank=rank,
        num_gpus=_fewest_gpus(recipe, fits),
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
    while high - low > max(1, low >> 8):  # to within 0.4 %
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fewest_gpus(recipe: Recipe, fits: Callable[[Recipe], bool]) -> int | None:
    sharding = recipe.sharding if recipe.sharding not in (None, "none", "ddp") else "fsdp"
    ways = recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.context_parallel_size
    for count in _GPUS:
        if count % ways:
            continue
        if fits(replace(recipe, num_gpus=count, sharding=None if count == 1 else sharding)):
            return count
    return None
