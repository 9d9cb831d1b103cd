"""Gated short convolution (LFM2): three projections of the hidden size, a convolution over a few tokens.

Source: transformers 5.24 modeling_lfm2 (Lfm2ShortConv); vLLM 0.19.1 layers/mamba/short_conv.py, mamba_utils.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, State, StateCache
from planner.model.tensor import Role, Split, Tensor, linear, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv:
    """One short convolution block over `size` channels, seeing `kernel` tokens."""

    size: int
    kernel: int
    bias: bool = False
    block: str = "conv"

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        channels = whole(self.size)
        found = list(linear("in_proj", 3 * self.size, hidden_size, Role.RECURRENT, bias=self.bias, column=channels * 3))
        found.append(Tensor("conv.weight", (self.size, 1, self.kernel), Role.RECURRENT, Split(0, channels)))
        if self.bias:
            found.append(Tensor("conv.bias", (self.size,), Role.RECURRENT, Split(0, channels)))
        found += linear("out_proj", hidden_size, self.size, Role.RECURRENT, bias=self.bias, row=channels)
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """The convolution's tail (kernel - 1, size)."""
        conv = State(
            name="conv",
            shape=(self.kernel - 1, self.size),
            split=Split(1, whole(self.size)),
            kind="conv",
            lengthened=True,
        )
        return (StateCache(kind="short_conv", states=(conv,)),)
