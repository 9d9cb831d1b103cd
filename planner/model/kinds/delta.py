"""Delta-rule recurrences: the gated delta net (Qwen3-Next, Olmo Hybrid) and Kimi Delta Attention.

Both keep, per sequence, the last kernel - 1 inputs of a short convolution over queries, keys and values, and one
matrix of value size x key size for each value head.

Sources: Gated DeltaNet (arXiv 2412.06464); Kimi Linear (arXiv 2510.26692); transformers 5.24 modeling_qwen3_next,
modeling_qwen3_5, modeling_olmo_hybrid, modeling_kimi_linear; vLLM 0.19.1 models/qwen3_next.py, layers/kda.py,
layers/mamba/mamba_utils.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, State, StateCache
from planner.model.tensor import Norm, Part, Role, Split, Tensor, linear, vector, whole

_CHUNK = 64  # tokens per step of the delta-rule prefill kernel (flash-linear-attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """One gated delta net block.

    key size K = num_key_heads x key_head_dim, value size V = num_value_heads x value_head_dim.

    Args:
        layout: how the input projections are stored. "qkvz_ba": one matrix [2K + 2V, H] and one [2 heads, H]
            (Qwen3-Next); "qkv_z_b_a": four matrices (Qwen3.5); "separate": q, k, v, a, b, g on their own
            (Olmo Hybrid).
        state_dtype: storage type of the recurrent state that the config asks for, or None.
        block, output, norm: module names.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    layout: str = "qkvz_ba"
    state_dtype: str | None = None
    block: str = "linear_attn"
    output: str = "out_proj"
    norm: str = "norm"

    @property
    def key_size(self) -> int:
        """Elements of all key heads."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_size(self) -> int:
        """Elements of all value heads."""
        return self.num_value_heads * self.value_head_dim

    @property
    def _key(self) -> Part:
        return Part(self.key_size, self.num_key_heads)

    @property
    def _value(self) -> Part:
        return Part(self.value_size, self.num_value_heads)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        heads = whole(self.num_value_heads)
        found: list[Tensor] = []
        for name, parts in self._projections(heads[0]):
            found += linear(name, sum(part.size for part in parts), hidden_size, Role.RECURRENT, column=parts)
        mixed = (self._key, self._key, self._value)
        conv_size = sum(part.size for part in mixed)
        found.append(Tensor("conv1d.weight", (conv_size, 1, self.conv_kernel), Role.RECURRENT, Split(0, mixed)))
        found.append(vector("dt_bias", self.num_value_heads, Role.RECURRENT, column=heads))
        found.append(Tensor("A_log", (self.num_value_heads,), Role.RECURRENT, Split(0, heads), dtype="float32"))
        found += Norm(self.norm, self.value_head_dim).tensors()
        found += linear(self.output, hidden_size, self.value_size, Role.RECURRENT, row=(self._value,))
        return tuple(tensor.named(self.block) for tensor in found)

    def _projections(self, head: Part) -> tuple[tuple[str, tuple[Part, ...]], ...]:
        key, value = self._key, self._value
        if self.layout == "qkvz_ba":
            return (("in_proj_qkvz", (key, key, value, value)), ("in_proj_ba", (head, head)))
        if self.layout == "qkv_z_b_a":
            return (
                ("in_proj_qkv", (key, key, value)),
                ("in_proj_z", (value,)),
                ("in_proj_b", (head,)),
                ("in_proj_a", (head,)),
            )
        return (
            ("q_proj", (key,)),
            ("k_proj", (key,)),
            ("v_proj", (value,)),
            ("a_proj", (head,)),
            ("b_proj", (head,)),
            ("g_proj", (value,)),
        )

    def caches(self) -> tuple[CacheLayer, ...]:
        """The convolution's tail (kernel - 1, 2K + V) and the state (value heads, value dim, key dim)."""
        mixed = (self._key, self._key, self._value)
        conv_size = sum(part.size for part in mixed)
        conv = State(
            name="conv", shape=(self.conv_kernel - 1, conv_size), split=Split(1, mixed), kind="conv", lengthened=True
        )
        recurrent = State(
            name="recurrent",
            shape=(self.num_value_heads, self.value_head_dim, self.key_head_dim),
            split=Split(0, whole(self.num_value_heads)),
            dtype=self.state_dtype,
        )
        return (StateCache(kind="gated_delta_net", states=(conv, recurrent), chunk_size=_CHUNK),)


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """One Kimi Delta Attention block: the gated delta net with a decay for every channel.

    The low-rank gates f and g go through `head_dim` channels; their first matrices are whole on every GPU. The
    checkpoint's three convolutions (q_conv1d, k_conv1d, v_conv1d) are one tensor here, as in transformers.

    Args:
        full_rank_gate: the output gate g is one matrix (Kimi K3).
        decay_size: entries of A_log (None: one a head).
    """

    num_heads: int
    head_dim: int
    conv_kernel: int
    full_rank_gate: bool = False
    decay_size: int | None = None
    block: str = "self_attn"

    @property
    def size(self) -> int:
        """Elements of all heads, the same for queries, keys and values."""
        return self.num_heads * self.head_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        role, size, heads = Role.RECURRENT, self.size, self.num_heads
        channels = whole(size, heads)
        found: list[Tensor] = []
        for name in ("q_proj", "k_proj", "v_proj"):
            found += linear(name, size, hidden_size, role, column=channels)
        found.append(Tensor("conv1d.weight", (3 * size, 1, self.conv_kernel), role, Split(0, channels * 3)))
        found += linear("f_a_proj", self.head_dim, hidden_size, role)
        found += linear("f_b_proj", size, self.head_dim, role, column=channels)
        found.append(Tensor("dt_bias", (size,), role, Split(0, channels), dtype="float32"))
        decay_split = Split(2, whole(heads)) if self.decay_size is None else None
        found.append(Tensor("A_log", (1, 1, self.decay_size or heads, 1), role, decay_split, dtype="float32"))
        found += linear("b_proj", heads, hidden_size, role, column=whole(heads))
        if self.full_rank_gate:
            found += linear("g_proj", size, hidden_size, role, column=channels)
        else:
            found += linear("g_a_proj", self.head_dim, hidden_size, role)
            found += linear("g_b_proj", size, self.head_dim, role, column=channels)
        found += Norm("o_norm", self.head_dim).tensors()
        found += linear("o_proj", hidden_size, size, role, row=channels)
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """The convolution's tail (kernel - 1, 3 x size) and an fp32 state (heads, dim, dim).

        vLLM fixes the state's type (mamba_utils.py, kda_state_dtype). Up to 0.19 it keeps three convolution
        states of a third each, which is the same number of elements.
        """
        channels = whole(self.size, self.num_heads)
        conv = State(
            name="conv",
            shape=(self.conv_kernel - 1, 3 * self.size),
            split=Split(1, channels * 3),
            kind="conv",
            lengthened=True,
        )
        recurrent = State(
            name="recurrent",
            shape=(self.num_heads, self.head_dim, self.head_dim),
            split=Split(0, whole(self.num_heads)),
            kind="fixed",
            dtype="float32",
        )
        return (StateCache(kind="kimi_delta", states=(conv, recurrent), chunk_size=_CHUNK),)
