"""Selective state-space layers: Mamba 1 and Mamba 2.

Both keep, per sequence, the last kernel - 1 inputs of a short convolution and one state: inner x state_size
elements, whatever the length.

Sources: Mamba (arXiv 2312.00752), Mamba-2 (arXiv 2405.21060); transformers 5.24 modeling_mamba, modeling_jamba,
modeling_zamba, modeling_mamba2; vLLM 0.19.1 layers/mamba/mamba_mixer.py, mamba_mixer2.py, mamba_utils.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, State, StateCache
from planner.model.tensor import Norm, Part, Role, Split, Tensor, linear, vector, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """One Mamba 1 block.

    Args:
        intermediate_size: inner width, usually twice the hidden size.
        state_size: state elements of each inner channel.
        time_step_rank: width of the low-rank time step.
        use_bias, conv_bias: biases of the in and out projections, and of the convolution.
        inner_norms: learned norms on the time step, B and C (Jamba); Falcon-Mamba's have no weight.
        num_heads: the selective projections are stacked per head (Zamba); None: one matrix each.
        state_dtype: storage type of the state that the config asks for, or None.
        block: module name.
    """

    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    use_bias: bool = False
    conv_bias: bool = True
    inner_norms: bool = False
    num_heads: int | None = None
    state_dtype: str | None = None
    block: str = "mixer"

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        inner, state, rank, role = self.intermediate_size, self.state_size, self.time_step_rank, Role.RECURRENT
        channels = whole(inner)
        found: list[Tensor] = []
        found += linear("in_proj", 2 * inner, hidden_size, role, bias=self.use_bias, column=channels * 2)
        found += _convolution(inner, self.conv_kernel, channels, bias=self.conv_bias)
        if self.num_heads is None:
            found += linear("x_proj", rank + 2 * state, inner, role, row=channels)
            found += linear("dt_proj", inner, rank, role, bias=True, column=channels)
            found.append(Tensor("A_log", (inner, state), role, Split(0, channels), dtype="float32"))
            found.append(vector("D", inner, role, column=channels))
        else:
            found += self._stacked(self.num_heads)
        if self.inner_norms:
            for name, size in (("dt_layernorm", rank), ("b_layernorm", state), ("c_layernorm", state)):
                found += Norm(name, size).tensors()
        found += linear("out_proj", hidden_size, inner, role, bias=self.use_bias, row=channels)
        return tuple(tensor.named(self.block) for tensor in found)

    def _stacked(self, heads: int) -> tuple[Tensor, ...]:
        """The selective part with one matrix a head."""
        width, state, rank, role = self.intermediate_size // heads, self.state_size, self.time_step_rank, Role.RECURRENT
        by_head = Split(0, whole(heads))
        return (
            Tensor("x_proj_weight", (heads, rank + 2 * state, width), role, by_head),
            Tensor("dt_proj_weight", (heads, width, rank), role, by_head),
            Tensor("dt_proj_bias", (heads, width), role, by_head),
            Tensor("A_log", (heads, width, state), role, by_head, dtype="float32"),
            Tensor("D", (heads, width), role, by_head),
        )

    def caches(self) -> tuple[CacheLayer, ...]:
        """The convolution's tail (kernel - 1, inner) and the state (inner, state)."""
        inner = self.intermediate_size
        channels = whole(inner)
        conv = State(name="conv", shape=(self.conv_kernel - 1, inner), split=Split(1, channels), kind="conv")
        ssm = State(name="ssm", shape=(inner, self.state_size), split=Split(0, channels), dtype=self.state_dtype)
        return (StateCache(kind="mamba1", states=(conv, ssm)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """One Mamba 2 block: inner = num_heads x head_dim channels, B and C shared by the heads of a group.

    Tensor parallelism cuts heads, and with them groups; a single group is copied to every GPU.

    Args:
        state_size: state elements of each inner channel.
        n_groups: groups that share B and C.
        use_bias, conv_bias: biases of the in projection, and of the convolution.
        output_bias: of the out projection (None: as use_bias).
        gated_norm: has a learned norm before the out projection (Falcon-H1 may do without).
        chunk_size: tokens of one step of the prefill scan.
        state_dtype: storage type of the state that the config asks for, or None.
        block: module name.
    """

    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    chunk_size: int
    use_bias: bool = False
    conv_bias: bool = True
    output_bias: bool | None = None
    gated_norm: bool = True
    state_dtype: str | None = None
    block: str = "mixer"

    @property
    def intermediate_size(self) -> int:
        """Inner width: elements of all heads."""
        return self.num_heads * self.head_dim

    @property
    def _convolved(self) -> tuple[Part, ...]:
        """What goes through the convolution: the channels, B and C."""
        group = Part(self.n_groups * self.state_size, self.n_groups, replicable=self.n_groups == 1)
        return (Part(self.intermediate_size, self.num_heads), group, group)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        role, heads = Role.RECURRENT, whole(self.num_heads)
        channels = whole(self.intermediate_size, self.num_heads)
        convolved = self._convolved
        projected = channels + convolved + heads
        conv_size = sum(part.size for part in convolved)
        found: list[Tensor] = []
        found += linear(
            "in_proj", sum(part.size for part in projected), hidden_size, role, bias=self.use_bias, column=projected
        )
        found += _convolution(conv_size, self.conv_kernel, convolved, bias=self.conv_bias)
        found.append(vector("dt_bias", self.num_heads, role, column=heads))
        found.append(Tensor("A_log", (self.num_heads,), role, Split(0, heads), dtype="float32"))
        found.append(vector("D", self.num_heads, role, column=heads))
        if self.gated_norm:
            found.append(Tensor("norm.weight", (self.intermediate_size,), Role.NORM, Split(0, channels)))
        output_bias = self.use_bias if self.output_bias is None else self.output_bias
        found += linear("out_proj", hidden_size, self.intermediate_size, role, bias=output_bias, row=channels)
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """The convolution's tail (kernel - 1, inner + 2 x groups x state) and the state (heads, head_dim, state)."""
        convolved = self._convolved
        conv_size = sum(part.size for part in convolved)
        conv = State(
            name="conv",
            shape=(self.conv_kernel - 1, conv_size),
            split=Split(1, convolved),
            kind="conv",
            lengthened=True,
        )
        ssm = State(
            name="ssm",
            shape=(self.num_heads, self.head_dim, self.state_size),
            split=Split(0, whole(self.num_heads)),
            dtype=self.state_dtype,
        )
        return (StateCache(kind="mamba2", states=(conv, ssm), chunk_size=self.chunk_size),)


def _convolution(size: int, kernel: int, parts: tuple[Part, ...], *, bias: bool) -> tuple[Tensor, ...]:
    """A depthwise convolution over `size` channels."""
    weight = Tensor("conv1d.weight", (size, 1, kernel), Role.RECURRENT, Split(0, parts))
    return (weight, Tensor("conv1d.bias", (size,), Role.RECURRENT, Split(0, parts))) if bias else (weight,)
