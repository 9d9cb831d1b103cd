"""What a recipe makes of a model's tensors: how each is stored, whether it is trained, its adapter."""

from __future__ import annotations

from dataclasses import dataclass

from planner.memory.formats import WeightFormat
from planner.model.spec import Layer
from planner.model.tensor import Role, Tensor
from planner.training.blocks.block import Adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainTensor:
    """One tensor under a recipe.

    Args:
        tensor: as the inventory has it, its name relative to its layer.
        shape: local shape on one tensor-parallel rank.
        format: how it is stored.
        width: bytes of an element of the type it computes in.
        storage: how a linear layer reads it (see `blocks.block.Weight`).
        trainable: gets a gradient and optimizer states.
        adapter: its low-rank adapter.
        saved_copy: a trainable copy is kept beside the frozen original (PEFT's modules_to_save).
        stepped: an optimizer takes its gradient up.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    format: WeightFormat
    width: int
    storage: str
    trainable: bool
    adapter: Adapter | None = None
    saved_copy: bool = False
    stepped: bool = True

    @property
    def numel(self) -> int:
        """Local elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that are alike in every respect: one is looked at for all.

    Args:
        first: index of the first.
        count: how many follow each other or are spread over the stack.
        indices: all of them.
    """

    layer: Layer
    indices: tuple[int, ...]
    tensors: tuple[TrainTensor, ...]
    trains: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Every tensor: embeddings, layers by kind, head, towers, and the layers of an encoder below."""

    embeddings: tuple[TrainTensor, ...]
    layers: tuple[LayerGroup, ...]
    head: tuple[TrainTensor, ...]
    towers: tuple[TrainTensor, ...]
    notes: tuple[str, ...]
    encoder: tuple[LayerGroup, ...] = ()
    first: bool = True
    last: bool = True
    stage: int = 0
    tied: bool = False

    @property
    def embedding(self) -> TrainTensor | None:
        """The table of tokens: of the embeddings, the one with the most elements."""
        tables = [t for t in self.embeddings if t.tensor.role is Role.EMBEDDING]
        return max(tables, key=lambda t: t.numel, default=None)

    @property
    def output(self) -> TrainTensor | None:
        """The matrix that makes logits: found by its shape, since a head has biases and transforms too.

        The head's own matrix of vocabulary x hidden, or the table of tokens it is tied to; None where there is neither.
        """
        own = [t for t in self.head if t.tensor.role in (Role.LM_HEAD, Role.EMBEDDING) and len(t.shape) == 2]
        return max(own, key=lambda t: t.numel, default=self.embedding if self.tied else None)

    def all(self) -> list[tuple[TrainTensor, int]]:
        """Every tensor with how many layers have one like it."""
        found = [(tensor, 1) for tensor in (*self.towers, *self.embeddings, *self.head)]
        for group in (*self.encoder, *self.layers):
            found += [(tensor, len(group.indices)) for tensor in group.tensors]
        return found
