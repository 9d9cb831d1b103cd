"""How the cards of one pipeline stage share a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the cards share a model.

    Args:
        tensor_parallel_size: cards of a stage; attention is shared by this over `attention_ranks`.
        attention_ranks: data-parallel ranks of the attention (1 without --enable-dp-attention).
        expert_parallel_size: cards over which whole experts are dealt (1: every expert is cut).
    """

    tensor_parallel_size: int = 1
    attention_ranks: int = 1
    expert_parallel_size: int = 1

    @property
    def attention_parallel_size(self) -> int:
        """Cards that share the attention heads."""
        return self.tensor_parallel_size // self.attention_ranks
