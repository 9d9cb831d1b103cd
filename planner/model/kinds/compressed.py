"""DeepSeek-V4's attention: one shared key that is also the value, a window, and compressed keys beyond it.

q_a   [q_lora_rank, H], q_b [heads x D, q_lora_rank]; kv [D, H]
o_a   [groups x o_lora_rank, heads x D / groups], one block for each group of heads; o_b [H, groups x o_lora_rank]

A layer keeps the last `sliding_window` tokens and, if it compresses, one vector of D for `compress_ratio` tokens.
With a ratio of 4 each vector covers two overlapping runs, so the compressor is twice as wide, and an indexer with
compressed keys of its own chooses among the vectors.

Sources: transformers 5.24 modeling_deepseek_v4; vLLM 0.20.0 layers/deepseek_v4_attention.py, deepseek_compressor.py
(compressors, the shared key and the indexer are whole on every GPU; compressors are never quantised).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.model.caches import CacheLayer, CompressedCache, IndexerCache
from planner.model.tensor import Norm, Role, Tensor, linear, vector, whole

OVERLAPPING: Final = 4  # the ratio whose vectors overlap and are chosen by an indexer


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressor:
    """What turns runs of `ratio` tokens into vectors of `width`.

    Its state is the keys and the scores of the tokens not compressed yet, in fp32.
    """

    width: int
    ratio: int
    role: Role
    block: str = "compressor"

    @property
    def inner(self) -> int:
        """Width before compression: twice the vector's where runs overlap."""
        return self.width * (2 if self.ratio == OVERLAPPING else 1)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight, whole on every GPU."""
        found = [Tensor(f"{name}.weight", (self.inner, hidden_size), self.role) for name in ("wkv", "wgate")]
        found.append(Tensor("ape", (self.ratio, self.inner), self.role, dtype="float32"))
        found += Norm("norm", self.width).tensors()
        return tuple(tensor.named(self.block) for tensor in found)

    def state(self) -> CompressedCache:
        """Keys and scores of the current run, and of the one before it where runs overlap."""
        window = self.ratio * (2 if self.ratio == OVERLAPPING else 1)
        return CompressedCache(width=2 * self.inner, compress_ratio=1, sliding_window=window, dtype="float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """One attention block.

    Args:
        head_dim: D, size of a query head and of the shared key.
        rotary_dim: elements at its end that rotary embedding turns.
        sliding_window: tokens kept uncompressed.
        compress_ratio: tokens of one compressed vector (0: the layer sees its window only).
        o_groups, o_lora_rank: groups of heads that the output is first projected in, and what each gives.
        index_heads, index_head_dim: of the indexer, for the overlapping ratio.
    """

    num_attention_heads: int
    head_dim: int
    rotary_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    sliding_window: int
    compress_ratio: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    block: str = "attn"

    @property
    def query_size(self) -> int:
        """Elements of all query heads."""
        return self.num_attention_heads * self.head_dim

    @property
    def indexed(self) -> bool:
        """An indexer chooses among the compressed vectors."""
        return self.compress_ratio == OVERLAPPING

    def _compressors(self) -> tuple[Compressor, ...]:
        if not self.compress_ratio:
            return ()
        own = Compressor(width=self.head_dim, ratio=self.compress_ratio, role=Role.ATTENTION)
        if not self.indexed:
            return (own,)
        keys = Compressor(
            width=self.index_head_dim, ratio=self.compress_ratio, role=Role.INDEXER, block="indexer.compressor"
        )
        return (own, keys)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        role, heads, groups = Role.ATTENTION, self.num_attention_heads, self.o_groups
        by_group = whole(groups * self.o_lora_rank, groups)
        found: list[Tensor] = []
        found += linear("wq_a", self.q_lora_rank, hidden_size, role)
        found += Norm("q_norm", self.q_lora_rank).tensors()
        found += linear("wq_b", self.query_size, self.q_lora_rank, role, column=whole(self.query_size, heads))
        found += linear("wkv", self.head_dim, hidden_size, role)
        found += Norm("kv_norm", self.head_dim).tensors()
        found += linear("wo_a", groups * self.o_lora_rank, self.query_size // groups, role, column=by_group)
        found += linear("wo_b", hidden_size, groups * self.o_lora_rank, role, row=by_group)
        sinks = vector("attn_sink", heads, role, column=whole(heads))
        found.append(Tensor(sinks.name, sinks.shape, role, sinks.split, dtype="float32"))
        for compressor in self._compressors():
            found += compressor.tensors(hidden_size)
        if self.indexed:
            queries = self.index_heads * self.index_head_dim
            found += linear("indexer.wq_b", queries, self.q_lora_rank, Role.INDEXER)
            found.append(Tensor("indexer.weights_proj.weight", (self.index_heads, hidden_size), Role.INDEXER))
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """The window, the compressed vectors, the indexer's keys, and what the compressors hold."""
        found: list[CacheLayer] = [
            CompressedCache(width=self.head_dim, compress_ratio=1, sliding_window=self.sliding_window)
        ]
        if self.compress_ratio:
            found.append(CompressedCache(width=self.head_dim, compress_ratio=self.compress_ratio))
        if self.indexed:
            found.append(IndexerCache(index_head_dim=self.index_head_dim, compress_ratio=self.compress_ratio))
        found += [compressor.state() for compressor in self._compressors()]
        return tuple(found)
