"""The inventory: every weight tensor of a model, by full name.

Its sum is the parameter count. A tied matrix appears once, as the embedding. Buffers (a router's score
correction), which a checkpoint stores but nobody counts, are only in a layer's own list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Tensor


def tensors(spec: ModelSpec) -> Iterator[Tensor]:
    """Every weight tensor in order of use: towers and encoders, embeddings, layers, head. No draft layers."""
    for stack in spec.stacks:
        yield from stack.tensors
        yield from layer_tensors(stack.layers, stack.hidden_size, stack.layer_prefix)
    yield from spec.embeddings
    yield from layer_tensors(spec.layers, spec.hidden_size, spec.layer_prefix)
    yield from spec.head


def draft_tensors(spec: ModelSpec, *, buffers: bool = False) -> Iterator[Tensor]:
    """Every weight of the draft (MTP) layers, buffers on request; empty for most models.

    Layers are named as counted on from the model's own ("model.layers.61"), and answer to "mtp.layers.0" besides.
    """
    for tensor in spec.draft_tensors:
        yield replace(tensor, draft_name=f"mtp.{tensor.name.removeprefix('mtp.')}")
    for index, layer in enumerate(spec.draft_layers):
        for tensor in layer.tensors(spec.hidden_size):
            if buffers or not tensor.buffer:
                name = f"{spec.layer_prefix}.{len(spec.layers) + index}.{tensor.name}"
                yield replace(tensor, name=name, draft_name=f"mtp.layers.{index}.{tensor.name}")


def layer_tensors(layers: tuple[Layer, ...], hidden_size: int, prefix: str) -> Iterator[Tensor]:
    """The tensors of a list of layers, named `prefix.<index>.<name>`."""
    of_kind: dict[int, tuple[Tensor, ...]] = {}
    for index, layer in enumerate(layers):
        own = of_kind.get(id(layer))
        if own is None:
            own = of_kind[id(layer)] = tuple(t for t in layer.tensors(hidden_size) if not t.buffer)
        for tensor in own:
            yield tensor.named(f"{prefix}.{index}")


def distinct_tensors(spec: ModelSpec, *, towers: bool = True) -> Iterator[Tensor]:
    """One tensor of each shape and place: of equal layers the first one's alone, since the others divide alike."""
    if towers:
        for stack in spec.stacks:
            yield from stack.tensors
            yield from _first_of_kind(stack.layers, stack.hidden_size, stack.layer_prefix)
    yield from spec.embeddings
    yield from _first_of_kind(spec.layers, spec.hidden_size, spec.layer_prefix)
    yield from spec.head


def _first_of_kind(layers: tuple[Layer, ...], hidden_size: int, prefix: str) -> Iterator[Tensor]:
    seen: set[int] = set()
    for index, layer in enumerate(layers):
        if id(layer) not in seen:
            seen.add(id(layer))
            yield from (t.named(f"{prefix}.{index}") for t in layer.tensors(hidden_size) if not t.buffer)


def parameters(spec: ModelSpec) -> int:
    """Weights of the whole model, a tied matrix counted once, draft layers not counted."""
    return _total(spec, active=False)


def active_parameters(spec: ModelSpec) -> int:
    """Weights that one token's forward uses: routed experts by the share a token visits."""
    return _total(spec, active=True)


def _total(spec: ModelSpec, *, active: bool) -> int:
    def size(tensor: Tensor) -> int:
        if tensor.buffer:
            return 0
        return tensor.active_numel if active else tensor.numel

    def of_layers(layers: tuple[Layer, ...], hidden_size: int) -> int:
        by_layer: dict[int, int] = {}
        total = 0
        for layer in layers:
            if id(layer) not in by_layer:
                by_layer[id(layer)] = sum(map(size, layer.tensors(hidden_size)))
            total += by_layer[id(layer)]
        return total

    total = sum(map(size, spec.embeddings)) + sum(map(size, spec.head))
    total += of_layers(spec.layers, spec.hidden_size)
    for stack in spec.stacks:
        total += sum(map(size, stack.tensors)) + of_layers(stack.layers, stack.hidden_size)
    return total
