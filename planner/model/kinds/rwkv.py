"""RWKV-4 time mixing: a decaying weighted average of values, kept as numerator, denominator and exponent.

Source: RWKV (arXiv 2305.13048); transformers 5.24 modeling_rwkv. No engine that the planner knows serves it.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, State, StateCache
from planner.model.tensor import Role, Split, Tensor, linear, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RwkvTimeMixing:
    """One time mixing block of `size` channels; the state also holds the channel mixing's last input.

    Args:
        size: channels (attention_hidden_size).
        hidden_size: width of the two remembered inputs.
    """

    size: int
    hidden_size: int
    block: str = "attention"

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        role, channels = Role.RECURRENT, whole(self.size)
        found = [
            Tensor(name, (self.size,), role, Split(0, channels), dtype="float32")
            for name in ("time_decay", "time_first")
        ]
        found += [Tensor(f"time_mix_{name}", (1, 1, hidden_size), role) for name in ("key", "value", "receptance")]
        for name in ("key", "value", "receptance"):
            found += linear(name, self.size, hidden_size, role, column=channels)
        found += linear("output", hidden_size, self.size, role, row=channels)
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """Two last inputs in the cache dtype, and three fp32 vectors (RwkvModel.forward makes them so)."""
        shift = State(name="shift", shape=(2, self.hidden_size), split=Split(1, whole(self.hidden_size)), kind="conv")
        average = State(
            name="wkv", shape=(3, self.size), split=Split(1, whole(self.size)), kind="fixed", dtype="float32"
        )
        return (StateCache(kind="rwkv", states=(shift, average)),)
