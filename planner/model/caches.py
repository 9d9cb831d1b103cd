"""What one layer remembers: per token, or once per sequence.

One small class for each kind of cache. Each knows its own geometry and how many token slots a sequence of a
given length keeps (`slots`); bytes follow in `planner.memory.cache.kv_cache` from the cache's storage format.
Elements are counted for the whole layer; how tensor parallelism divides them is stated by `heads`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from planner.model.tensor import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueCache:
    """Keys and values of every token: MHA, GQA, MQA.

    With `sliding_window` only the last that many tokens are kept; with `attention_chunk_size` only the tokens
    of the current chunk.
    """

    num_key_value_heads: int
    key_head_dim: int
    value_head_dim: int
    sliding_window: int | None = None
    attention_chunk_size: int | None = None

    def slots(self, length: int) -> int:
        """Token slots that a sequence of `length` tokens keeps."""
        bounds = [length, self.sliding_window, self.attention_chunk_size]
        return min(bound for bound in bounds if bound is not None)

    @property
    def bounded(self) -> bool:
        """Whether the cache stops growing at some length."""
        return self.sliding_window is not None or self.attention_chunk_size is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCache:
    """MLA: one compressed vector of kv_lora_rank and one rotary key per token, the same on every GPU.

    Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    sliding_window: int | None = None

    def slots(self, length: int) -> int:
        """Token slots that a sequence of `length` tokens keeps."""
        return length if self.sliding_window is None else min(length, self.sliding_window)

    @property
    def bounded(self) -> bool:
        """Whether the cache stops growing at some length."""
        return self.sliding_window is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerCache:
    """The key of a sparse-attention indexer: one vector of `index_head_dim` per token, on every GPU.

    DeepSeek-V4 keeps one for every `compress_ratio` tokens.

    Source: DeepSeek-V3.2 report; vLLM stores it as 8-bit values with one fp32 scale per 128.
    """

    index_head_dim: int
    compress_ratio: int = 1

    def slots(self, length: int) -> int:
        """Vectors that a sequence of `length` tokens keeps."""
        return -(-length // self.compress_ratio)

    @property
    def bounded(self) -> bool:
        """Whether the cache stops growing at some length."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedCache:
    """DeepSeek-V4: one vector of `width` elements for every `compress_ratio` tokens, on every GPU.

    `dtype` "float32" marks what a compressor keeps of the tokens that it has not compressed yet: it is stored so
    whatever the cache format. None: in the cache format.
    """

    width: int
    compress_ratio: int
    sliding_window: int | None = None
    dtype: str | None = None

    def slots(self, length: int) -> int:
        """Vectors that a sequence of `length` tokens keeps."""
        kept = length if self.sliding_window is None else min(length, self.sliding_window)
        return -(-kept // self.compress_ratio)

    @property
    def bounded(self) -> bool:
        """Whether the cache stops growing at some length."""
        return self.sliding_window is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCache:
    """Keys and values of an encoder's output, kept once per sequence for `source_tokens` positions."""

    num_key_value_heads: int
    key_head_dim: int
    value_head_dim: int
    source_tokens: int

    def slots(self, length: int) -> int:
        """Token slots, whatever the decoder's `length`."""
        del length
        return self.source_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One tensor of a recurrent state.

    Args:
        name: what it is ("conv", "ssm").
        shape: elements by dimension, of the whole model.
        split: how tensor parallelism cuts one dimension.
        kind: "conv" is kept in the cache dtype; "recurrent" in the state dtype (the cache dtype unless the
            model or the user says otherwise); "fixed" in `dtype`, whatever the user asks for.
        dtype: storage type that the model asks for ("float32"); None: as `kind` says.
        lengthened: one more row in dimension 0 for each token that speculative decoding proposes.

    Source: vLLM 0.19.1 `model_executor/layers/mamba/mamba_utils.py`.
    """

    name: str
    shape: tuple[int, ...]
    split: Split
    kind: str = "recurrent"
    dtype: str | None = None
    lengthened: bool = False

    def elements(self, tensor_parallel_size: int = 1, *, speculative_tokens: int = 0) -> int:
        """Elements on one GPU, for one sequence.

        Raises:
            UsageError: the heads or groups do not divide by the GPUs.
        """
        shape = list(self.shape)
        shape[self.split.dim] = sum(part.local(tensor_parallel_size) for part in self.split.parts)
        if self.lengthened:
            shape[0] += speculative_tokens
        return prod(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCache:
    """A recurrent layer's state: fixed bytes per sequence, none per token.

    Args:
        kind: "mamba1", "mamba2", "gated_delta_net", "kimi_delta", "lightning", "short_conv" or "rwkv".
        states: the tensors one sequence keeps.
        chunk_size: tokens that the layer's prefill kernel works on at once (0 when it has none).
    """

    kind: str
    states: tuple[State, ...]
    chunk_size: int = 0

    def elements(self, tensor_parallel_size: int = 1, *, speculative_tokens: int = 0) -> int:
        """Elements of all states on one GPU, for one sequence.

        Raises:
            UsageError: the heads or groups do not divide by the GPUs.
        """
        return sum(state.elements(tensor_parallel_size, speculative_tokens=speculative_tokens) for state in self.states)


CacheLayer = KeyValueCache | LatentCache | IndexerCache | CompressedCache | CrossCache | StateCache
