"""What a step of a served model reads and multiplies on the cards, engine-neutral: the input of speeds."""

from __future__ import annotations

from dataclasses import dataclass

from planner.memory.cache.kv_cache import LayerCache
from planner.memory.quantisation import WeightScheme
from planner.model.tensor import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """One pipeline stage's share.

    Args:
        layers: its layers.
        weights: bytes on one card by what they are for.
        caches: what its layers keep of a sequence on one card.
    """

    layers: slice
    weights: tuple[tuple[Role, int], ...]
    caches: tuple[LayerCache, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A plan's share of work on one card of each stage.

    Args:
        ways: cards that share every matrix.
        element_bytes: of an activation.
        scheme: how the weights are stored.
        graphs: decode steps are captured and launched at once; else kernel by kernel.
    """

    ways: int
    element_bytes: int
    scheme: WeightScheme
    stages: tuple[StageWork, ...]
    graphs: bool = True
