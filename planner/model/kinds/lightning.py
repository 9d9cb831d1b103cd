"""Lightning attention (MiniMax-01): linear attention with a decay, one head_dim x head_dim matrix a head.

Source: MiniMax-01 (arXiv 2501.08313); transformers 5.24 modeling_minimax; vLLM 0.19.1 layers/mamba/linear_attn.py,
mamba_utils.py (linear_attention_state_shape and _dtype).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, State, StateCache
from planner.model.tensor import Role, Split, Tensor, linear, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention:
    """One lightning attention block; `block_size` tokens are worked on at once in prefill."""

    num_heads: int
    head_dim: int
    block_size: int = 256
    block: str = "self_attn"

    @property
    def size(self) -> int:
        """Elements of all heads, the same for queries, keys and values."""
        return self.num_heads * self.head_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        role, channels = Role.RECURRENT, whole(self.size, self.num_heads)
        found = list(linear("qkv_proj", 3 * self.size, hidden_size, role, column=channels * 3))
        found += linear("output_gate", self.size, hidden_size, role, column=channels)
        found.append(Tensor("norm.weight", (self.size,), Role.NORM, Split(0, channels)))
        found += linear("out_proj", hidden_size, self.size, role, row=channels)
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """One matrix (heads, dim, dim) in the cache dtype: vLLM has no separate state dtype for it."""
        state = State(
            name="kv",
            shape=(self.num_heads, self.head_dim, self.head_dim),
            split=Split(0, whole(self.num_heads)),
            kind="conv",
        )
        return (StateCache(kind="lightning", states=(state,), chunk_size=self.block_size),)
