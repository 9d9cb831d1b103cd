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
from planner.training.recipe import DTYPES, Recipe
from planner.training.states.inventory import Inventory, TrainTensor
from planner.training.states.optimizers import FP32, Optimizer, optimizer

_GRADIENTS = {"fp32": 4, "float32": 4, "bf16": 2, "fp16": 2, "bfloat16": 2, "float16": 2}
# Stacks on transformers' Trainer, whose create_optimizer keeps embeddings' states in 32 bit beside an 8-bit optimizer
# and puts norms and biases in a parameter group of their own.
_TRAINERS = frozenset({"trl", "fms", "axolotl", "llamafactory", "unsloth"})


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
        updates: trained tensors as the optimizer walks over them, layers that are alike at most twice.
        rounding_bytes: what the allocator counts beyond the weights' own bytes.
    """

    frozen_bytes: int
    frozen_numel: int
    weight_rounding_bytes: int
    trained: tuple[TrainedTensor, ...]
    updates: tuple[TrainedTensor, ...]
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
        if step == "adafactor":
            return _adafactor_bytes(self.updates)
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
        pieces = tensor.format.pieces(tensor.shape, tensor.tensor.input_dim)
        size = sum(pieces)
        sizes += pieces * count
        if not tensor.trainable:
            frozen += size * count
            frozen_numel += tensor.numel * count
        trained += _trained_of(tensor, recipe, chosen, count)
    if recipe.method == "prompt" and found.first:
        hidden = next(t.shape[-1] for t in found.embeddings if t.tensor.role is Role.EMBEDDING)
        shape = (recipe.prompt_tokens, hidden)
        trained.append(_trained("prompt", shape, 4, found.embeddings[0], recipe, chosen, 1))
    return States(
        frozen_bytes=frozen,
        frozen_numel=frozen_numel,
        weight_rounding_bytes=occupancy(sizes).allocated_bytes - sum(sizes),
        trained=tuple(trained),
        updates=_updates(found, recipe, chosen),
        optimizer=chosen,
    )


def _trained_of(tensor: TrainTensor, recipe: Recipe, chosen: Optimizer, count: int) -> list[TrainedTensor]:
    """What is trained of one tensor: itself, a copy of it, its adapter."""
    made: list[TrainedTensor] = []
    if tensor.trainable:
        made.append(_trained(tensor.tensor.name, tensor.shape, tensor.width, tensor, recipe, chosen, count))
    if tensor.saved_copy:
        name = f"{tensor.tensor.name} (saved copy)"
        made.append(_trained(name, tensor.shape, 4, tensor, recipe, chosen, count))
    for name, shape, width in adapter_tensors(tensor):
        made.append(_trained(name, shape, width, tensor, recipe, chosen, count))
    return made


def _updates(found: Inventory, recipe: Recipe, chosen: Optimizer) -> tuple[TrainedTensor, ...]:
    """Trained tensors in the order of the optimizer's parameter groups.

    A plain loop hands over `model.parameters()`; a Trainer makes two groups, vectors (norms, biases) in the second
    (transformers 5.24 trainer.py get_decay_parameter_names).
    """
    runs = [found.embeddings]
    runs += [group.tensors * min(2, len(group.indices)) for group in found.layers]
    runs.append(found.head)
    order = [made for run in runs for tensor in run for made in _trained_of(tensor, recipe, chosen, 1)]
    if recipe.framework in _TRAINERS:
        order.sort(key=lambda one: len(one.shape) < 2)
    return tuple(order)


def _adafactor_bytes(updates: tuple[TrainedTensor, ...]) -> int:
    """What Adafactor's step holds at its peak besides the states, in bytes: fp32 throughout.

    For a parameter of n elements: its gradient and itself in fp32 (copies, where they are 16 bit), and twice n more
    while `(grad**2) + eps` is made; at that time the update of the parameter before still has its name in the loop.
    Later n and the old square stand beside the row and column factors.
    Source: transformers 5.24 optimization.py Adafactor.step, _approx_sq_grad.
    """
    peak = before = 0
    for one in updates:
        gradient_width = one.gradient_bytes // one.numel
        copies = 2 + (gradient_width < FP32) + (one.width < FP32 and not one.master_bytes)
        factors = one.numel // one.shape[-1] + one.numel // one.shape[-2] if len(one.shape) > 1 else 0
        peak = max(peak, FP32 * (copies * one.numel + max(before, factors)))
        before = one.numel
    return peak


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
        (f"{module}.lora_B.weight", (out_features // adapter.of, rank), adapter.width),
    ] * adapter.parts
    if adapter.dora:
        found.append((f"{module}.lora_magnitude_vector", (out_features,), adapter.width))
    return tuple(found)


def _trained(
    name: str, shape: tuple[int, ...], width: int, tensor: TrainTensor, recipe: Recipe, chosen: Optimizer, count: int
) -> TrainedTensor:
    numel = prod(shape)
    gradient = _GRADIENTS[recipe.grad_dtype] if recipe.grad_dtype else width
    master = recipe.master_weights == "fp32" and width < DTYPES["float32"] and tensor.stepped
    state_width = 4 if master else width
    kept = chosen.state_tensors(shape, state_width, recipe.optimizer_rank) if tensor.stepped else ()
    in_32_bit = tensor.tensor.role is Role.EMBEDDING and recipe.framework in _TRAINERS
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
