"""Weights, gradients, optimizer states and adapters, tensor by tensor.

Full fine-tune with AdamW, the arithmetic on paper, in bytes a parameter:
    fp32                          4 + 4 + 4 + 4              = 16
    bf16 and an fp32 master       2 + 2 + 4 + 4 + 4          = 16
    bf16, fp32 gradients, master  2 + 4 + 4 + 4 + 4          = 18
    pure bf16                     2 + 2 + 2 + 2              =  8
8e9 parameters x 16 = 128 GB before an activation.

Source: training_formulas, section 1: torch optim, bitsandbytes optim, Megatron distrib_optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from planner.memory.allocator import occupancy, rounded
from planner.model.tensor import Role
from planner.training.optimizers import Optimizer, optimizer
from planner.training.recipe import DTYPES, Recipe
from planner.training.trainable import Inventory, TrainTensor

_GRADIENTS = {"fp32": 4, "float32": 4, "bf16": 2, "fp16": 2, "bfloat16": 2, "float16": 2}
# Trainers that keep embeddings' states in 32 bit beside an 8-bit optimizer (transformers Trainer.create_optimizer).
_EMBEDDINGS_IN_32_BIT = frozenset({"trl", "fms", "axolotl", "llamafactory", "unsloth"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTensor:
    """One trained parameter: its name, shape, element width, and the bytes that go with it."""

    name: str
    shape: tuple[int, ...]
    width: int
    weight_bytes: int
    gradient_bytes: int
    master_bytes: int
    state_bytes: tuple[int, ...]
    count: int

    @property
    def numel(self) -> int:
        """Elements of one."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """What is alive in every phase, in bytes on one GPU before any sharding over data-parallel ranks.

    Args:
        frozen_bytes: weights that are not trained, packed or plain.
        trained: every trained tensor.
        rounding_bytes: what the allocator counts beyond the weights' own bytes.
    """

    frozen_bytes: int
    frozen_numel: int
    weight_rounding_bytes: int
    trained: tuple[TrainedTensor, ...]
    optimizer: Optimizer

    def _sum(self, of: Callable[[TrainedTensor], int]) -> int:
        return sum(of(tensor) * tensor.count for tensor in self.trained)

    @property
    def trained_numel(self) -> int:
        """Trained elements."""
        return self._sum(lambda t: t.numel)

    @property
    def trained_weight_bytes(self) -> int:
        """Weights that are trained."""
        return self._sum(lambda t: t.weight_bytes)

    @property
    def gradient_bytes(self) -> int:
        """All gradients at once."""
        return self._sum(lambda t: t.gradient_bytes)

    @property
    def master_bytes(self) -> int:
        """fp32 copies of the trained weights."""
        return self._sum(lambda t: t.master_bytes)

    @property
    def optimizer_bytes(self) -> int:
        """The optimizer's states."""
        return self._sum(lambda t: sum(t.state_bytes))

    @property
    def optimizer_rounding_bytes(self) -> int:
        """What the allocator counts for gradients and states beyond their own bytes."""
        return self._sum(lambda t: sum(rounded(size) - size for size in (*t.state_bytes, t.gradient_bytes)))

    @property
    def paged_bytes(self) -> int:
        """States in unified memory, which the allocator does not count."""
        return self._sum(lambda t: sum(t.state_bytes) if self.optimizer.pages(t.numel) else 0)

    def step_temporary_bytes(self) -> int:
        """What the optimizer's step allocates besides."""
        step = self.optimizer.step
        if step == "foreach":
            return self._sum(lambda t: t.numel * (4 if t.master_bytes else t.width))
        if step.startswith("largest:"):
            return int(step.partition(":")[2]) * 4 * max((t.numel for t in self.trained), default=0)
        return 0


def states(found: Inventory, recipe: Recipe) -> States:
    """The states of a (resolved) recipe."""
    chosen = optimizer(recipe.optim or "adamw_torch")
    frozen = frozen_numel = 0
    sizes: list[int] = []
    trained: list[TrainedTensor] = []
    for tensor, count in found.all():
        size = tensor.format.bytes(tensor.shape, tensor.tensor.input_dim)
        sizes += [size] * count
        if tensor.trainable:
            trained.append(_trained(tensor.tensor.name, tensor.shape, tensor.width, tensor, recipe, chosen, count))
        else:
            frozen += size * count
            frozen_numel += tensor.numel * count
        if tensor.saved_copy:
            name = f"{tensor.tensor.name} (saved copy)"
            trained.append(_trained(name, tensor.shape, 4, tensor, recipe, chosen, count))
        for name, shape, width in adapter_tensors(tensor):
            trained.append(_trained(name, shape, width, tensor, recipe, chosen, count))
    if recipe.method == "prompt":
        hidden = next(t.shape[-1] for t in found.embeddings if t.tensor.role is Role.EMBEDDING)
        shape = (recipe.prompt_tokens, hidden)
        trained.append(_trained("prompt", shape, 4, found.embeddings[0], recipe, chosen, 1))
    return States(
        frozen_bytes=frozen,
        frozen_numel=frozen_numel,
        weight_rounding_bytes=occupancy(sizes).allocated_bytes - sum(sizes),
        trained=tuple(trained),
        optimizer=chosen,
    )


def adapter_tensors(tensor: TrainTensor) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    """(name, shape, element width) of a tensor's adapter: A [r, in], B [out, r], DoRA's magnitude [out]."""
    adapter = tensor.adapter
    if adapter is None:
        return ()
    *stack, out_features, in_features = tensor.shape
    if tensor.tensor.input_dim % len(tensor.shape) == len(tensor.shape) - 2:
        out_features, in_features = in_features, out_features
    rank = adapter.rank * prod(stack)
    module = tensor.tensor.name.removesuffix(".weight")
    found: list[tuple[str, tuple[int, ...], int]] = [
        (f"{module}.lora_A.weight", (rank, in_features), adapter.width),
        (f"{module}.lora_B.weight", (out_features, rank), adapter.width),
    ]
    if adapter.dora:
        found.append((f"{module}.lora_magnitude_vector", (out_features,), adapter.width))
    return tuple(found)


def _trained(
    name: str, shape: tuple[int, ...], width: int, tensor: TrainTensor, recipe: Recipe, chosen: Optimizer, count: int
) -> TrainedTensor:
    numel = prod(shape)
    gradient = _GRADIENTS[recipe.grad_dtype] if recipe.grad_dtype else width
    master = recipe.master_weights == "fp32" and width < DTYPES["float32"]
    state_width = 4 if master else width
    kept = chosen.state_tensors(shape, state_width, recipe.optimizer_rank)
    in_32_bit = tensor.tensor.role is Role.EMBEDDING and recipe.framework in _EMBEDDINGS_IN_32_BIT
    if in_32_bit and "int8" in chosen.states and tensor.trainable:
        kept = tuple(numel * 4 for _ in chosen.states)
    return TrainedTensor(
        name=name,
        shape=shape,
        width=width,
        weight_bytes=numel * width,
        gradient_bytes=numel * gradient,
        master_bytes=numel * 4 if master else 0,
        state_bytes=kept,
        count=count,
    )
