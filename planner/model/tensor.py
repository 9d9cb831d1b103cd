"""One weight tensor: its name, shape, what it is, and how an engine spreads it over GPUs.

The builders at the end make the tensors of the usual modules (a linear layer, a norm, an embedding), so that
a kind of layer reads as the list of its modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from planner.errors import UsageError


class Role(Enum):
    """What a tensor is for; quantisers, optimisers and LoRA treat the roles differently."""

    EMBEDDING = "embedding"
    POSITION = "position embedding"
    LM_HEAD = "lm_head"
    NORM = "norm"
    ATTENTION = "attention"
    INDEXER = "indexer"
    RECURRENT = "recurrent"
    MLP = "mlp"
    ROUTER = "router"
    EXPERT = "expert"
    SHARED_EXPERT = "shared expert"
    PROJECTOR = "projector"
    VISION = "vision tower"
    AUDIO = "audio tower"
    DRAFT = "draft layer"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Part:
    """A run of elements along the split dimension, made of `units` pieces that cannot be cut further.

    `replicable` parts (key and value heads, state-space groups) are copied when there are fewer units than
    GPUs; the others must divide evenly.
    """

    size: int
    units: int
    replicable: bool = False

    def local(self, ways: int) -> int:
        """Elements on each of `ways` GPUs.

        Raises:
            UsageError: the units do not divide by `ways`, and cannot be replicated.
        """
        if self.units % ways == 0:
            return self.size // ways
        if self.replicable and ways % self.units == 0:
            return self.size // self.units
        raise UsageError(f"{self.units} units cannot be shared by {ways} GPUs", field="tensor_parallel_size")


@dataclass(frozen=True, slots=True)
class Split:
    """How tensor parallelism cuts one dimension: the parts along it, each cut on its own.

    `vocabulary` marks rows that the engine first pads to its vocabulary multiple.
    """

    dim: int
    parts: tuple[Part, ...]
    vocabulary: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight tensor.

    Args:
        name: dotted path as the checkpoint names it, relative to its layer until the inventory prefixes it.
        shape: elements by dimension, as transformers stores it.
        role: what it is for.
        split: how tensor parallelism cuts it; None when every GPU holds it whole.
        linear: a linear layer's weight, which a quantiser may convert; the last dimension is its input.
        input_dim: which dimension is the layer's input, for the few that store it first.
        num_experts: dimension 0 counts this many routed experts (0: not an expert tensor).
        active_experts: how many of them one token uses.
        dtype: fixed storage type ("float32"), or None for the model's.
        buffer: kept beside the parameters and counted by nobody as one (a router's score correction).
        draft_name: of a draft layer's tensor, its name counted among the drafts ("mtp.layers.0.mlp.up_proj.weight"),
            as lists of modules spell it that do not count on from the model's layers; "" otherwise.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    split: Split | None = None
    linear: bool = False
    input_dim: int = -1
    num_experts: int = 0
    active_experts: int = 0
    dtype: str | None = None
    buffer: bool = False
    draft_name: str = ""

    @property
    def numel(self) -> int:
        """Elements in the whole tensor."""
        return prod(self.shape)

    @property
    def active_numel(self) -> int:
        """Elements one token's forward reads: routed experts count by the share that a token uses."""
        if not self.num_experts:
            return self.numel
        return self.numel // self.num_experts * self.active_experts

    def named(self, prefix: str) -> Tensor:
        """The same tensor with `prefix.` before its name."""
        return replace(self, name=f"{prefix}.{self.name}") if prefix else self

    def whole(self) -> Tensor:
        """The same tensor, held whole by every GPU."""
        return self if self.split is None else replace(self, split=None)


def whole(size: int, units: int | None = None) -> tuple[Part, ...]:
    """One part that divides into `units` pieces (default: element by element)."""
    return (Part(size, units or size),)


def linear(
    name: str,
    out_features: int,
    in_features: int,
    role: Role,
    *,
    bias: bool = False,
    column: tuple[Part, ...] | None = None,
    row: tuple[Part, ...] | None = None,
    input_first: bool = False,
) -> tuple[Tensor, ...]:
    """A linear layer: its weight [out, in] and, if it has one, its bias [out].

    Args:
        column: parts of the output dimension that tensor parallelism cuts (the bias is cut with them).
        row: parts of the input dimension that it cuts (the bias stays whole on every GPU).
        input_first: stored as [in, out], as GPT-2's Conv1D does.
    """
    out_dim, in_dim = (1, 0) if input_first else (0, 1)
    shape = (in_features, out_features) if input_first else (out_features, in_features)
    split = Split(out_dim, column) if column else Split(in_dim, row) if row else None
    weight = Tensor(f"{name}.weight", shape, role, split, linear=True, input_dim=in_dim)
    if not bias:
        return (weight,)
    bias_split = Split(0, column) if column else None
    return (weight, Tensor(f"{name}.bias", (out_features,), role, bias_split))


def vector(name: str, size: int, role: Role, *, column: tuple[Part, ...] | None = None) -> Tensor:
    """A one-dimensional parameter."""
    return Tensor(name, (size,), role, Split(0, column) if column else None)


def vocabulary_matrix(name: str, vocab_size: int, width: int, role: Role) -> Tensor:
    """An embedding or output matrix [vocab, width], cut by rows after padding."""
    split = Split(0, (Part(vocab_size, vocab_size),), vocabulary=True)
    return Tensor(name, (vocab_size, width), role, split, linear=role is Role.LM_HEAD)


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation layer: RMSNorm has a weight, LayerNorm usually a weight and a bias.

    Args:
        name: module name.
        size: normalised width.
        kind: "rms" (computed in fp32 from an upcast copy), "rms_offset" (Gemma's 1 + weight) or "layer".
        weight: has a learned scale.
        bias: has a learned shift.
        heads: each of this many heads has a scale of its own, cut with the heads (0: one shared scale).
        module_per_head: those scales are modules `name.norms.<head>` rather than one matrix [heads, size].
    """

    name: str
    size: int
    kind: str = "rms"
    weight: bool = True
    bias: bool = False
    heads: int = 0
    module_per_head: bool = False

    def tensors(self) -> tuple[Tensor, ...]:
        """Its weight and bias, whole on every GPU unless every head has its own."""
        if self.heads and self.module_per_head:
            modules = (Norm(f"{self.name}.norms.{head}", self.size, bias=self.bias) for head in range(self.heads))
            return tuple(tensor for module in modules for tensor in module.tensors())
        if self.heads:
            split = Split(0, (Part(self.heads, self.heads, replicable=True),))
            return (Tensor(f"{self.name}.weight", (self.heads, self.size), Role.NORM, split),)
        found = []
        if self.weight:
            found.append(Tensor(f"{self.name}.weight", (self.size,), Role.NORM))
        if self.bias:
            found.append(Tensor(f"{self.name}.bias", (self.size,), Role.NORM))
        return tuple(found)


def layer_norm(name: str, size: int, *, bias: bool = True) -> Norm:
    """A LayerNorm with scale and, by default, shift."""
    return Norm(name, size, "layer", bias=bias)
