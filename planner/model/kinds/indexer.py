"""The lightning indexer of sparse attention: small heads that choose which tokens a query attends to.

DeepSeek-V3.2, GLM-5   queries from the compressed query, one weight a head, a LayerNorm on the key
MiniMax-M3             queries from the hidden state, norms on queries and keys, no weights

Its one key per token is a cache of its own, on every GPU.

Sources: DeepSeek-V3.2 report; transformers 5.24 modeling_deepseek_v32, modeling_glm_moe_dsa, modeling_minimax_m3_vl;
vLLM 0.19.1 models/deepseek_v2.py (Indexer: replicated, weights_proj never quantised).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.model.caches import CacheLayer, IndexerCache
from planner.model.kinds.attention import Attention
from planner.model.tensor import Norm, Role, Tensor, layer_norm, linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """One indexer.

    Args:
        num_heads, head_dim: its query heads and their size; the key has one head.
        query_size: width of the compressed query that its queries come from (None: the hidden state).
        block: module name, relative to the attention block.
    """

    num_heads: int
    head_dim: int
    query_size: int | None = None
    block: str = "indexer"

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the indexer, whole on every GPU."""
        role, size = Role.INDEXER, self.num_heads * self.head_dim
        found: list[Tensor] = []
        if self.query_size is None:
            found += linear("q_proj", size, hidden_size, role)
            found += linear("k_proj", self.head_dim, hidden_size, role)
            found += Norm("q_norm", self.head_dim, "rms_offset").tensors()
            found += Norm("k_norm", self.head_dim, "rms_offset").tensors()
        else:
            found += linear("wq_b", size, self.query_size, role)
            found += linear("wk", self.head_dim, hidden_size, role)
            found += layer_norm("k_norm", self.head_dim).tensors()
            for tensor in linear("weights_proj", self.num_heads, hidden_size, role):
                found.append(replace(tensor, linear=False))
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """Its key of every token."""
        return (IndexerCache(index_head_dim=self.head_dim),)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedAttention(Attention):
    """Attention with keys and values per head, whose tokens an indexer chooses (MiniMax-M3).

    Args:
        indexer: its own indexer.
    """

    indexer: Indexer

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block and its indexer."""
        own = tuple(tensor.named(self.names.block) for tensor in self.indexer.tensors(hidden_size))
        return Attention.tensors(self, hidden_size) + own

    def caches(self) -> tuple[CacheLayer, ...]:
        """Keys and values of every token, and the indexer's keys."""
        return Attention.caches(self) + self.indexer.caches()
