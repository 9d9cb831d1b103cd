"""Slots for LoRA adapters, which SGLang allocates before it sizes the pools.

    slots x rank x (in + out) x 2 B for every linear layer that is no expert, cut as the layer is

Source: SGLang 0.5.9 lora/mem_pool.py LoRAMemoryPool.
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.engines.sglang.resolve import Resolved
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.model import Model
from planner.model.tensor import Role
from planner.units import format_size

_TARGETS: Final = (Role.ATTENTION, Role.MLP)
# an adapter's rank where neither the command nor an adapter says it: 8 to 64 in published adapters
_UNKNOWN_RANK: Final = (8, 16, 64)


def adapter_slots(model: Model, resolved: Resolved, run: slice) -> Component:
    """The buffers of all slots on one card."""
    parallelism = Parallelism(tensor_parallel_size=resolved.spread.attention_parallel_size)
    width = 0
    for layer in model.spec.layers[run]:
        for tensor in layer.tensors(model.spec.hidden_size):
            if tensor.role in _TARGETS and tensor.linear and len(tensor.shape) == 2:
                width += sum(local_shape(tensor, parallelism))
    slots, rank = resolved.asked.max_loras_per_batch, resolved.asked.max_lora_rank
    low, best, high = (size * slots * width * 2 for size in (_UNKNOWN_RANK if rank is None else (rank,) * 3))
    said = f"rank {rank}" if rank is not None else f"rank {_UNKNOWN_RANK[1]} assumed: give --max-lora-rank"
    return Component(
        name="adapter_slots",
        low=low,
        best=best,
        high=high,
        evidence="derived" if rank is not None else "assumed",
        formula=f"{slots} slots, {said}: {format_size(best)}",
        source="SGLang 0.5.9 lora/mem_pool.py",
    )
