"""Over how many GPUs of a node a model can be cut, and the layouts that follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.errors import UsageError
from planner.memory.cache.kv_cache import local_key_value_heads
from planner.memory.parallel.sharding import Parallelism, divides
from planner.model.model import Model


def dividing_sizes(model: Model, sizes: Sequence[int]) -> tuple[int, ...]:
    """Those of the sizes that every tensor and every head divides by; remembered with the model."""
    key = ("dividing sizes", *sizes)
    found = model.memo.get(key)
    if not isinstance(found, tuple):
        found = model.memo[key] = tuple(size for size in sizes if _shares(model, size))
    return found


def _shares(model: Model, size: int) -> bool:
    try:
        for cache in model.caches:
            local_key_value_heads(cache, size)
    except UsageError:
        return False
    layers = {id(layer): layer for layer in model.spec.layers}.values()
    tensors = [tensor for layer in layers for tensor in layer.tensors(model.spec.hidden_size)]
    return divides([*model.spec.embeddings, *tensors, *model.spec.head], Parallelism(tensor_parallel_size=size)) is None


def fewest_cards_first(sizes: Iterable[int], deepest: int) -> list[tuple[int, int]]:
    """(tensor-parallel size, pipeline stages) of every layout, the fewest cards first, then the fewest stages."""
    found = [(size, stages) for size in sizes for stages in range(1, deepest + 1)]
    return sorted(found, key=lambda layout: (layout[0] * layout[1], layout[1]))
