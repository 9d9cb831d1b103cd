"""A tape of torch operations that counts bytes instead of computing: what is alive when, in forward and backward.

Blocks are written as the framework's own forward is written, on `Value`s that have a size and no content. A value's
memory is held as long as a Python variable of the block, or a node of the graph, refers to it, which is how torch
holds it too; so the lifetimes of the tape are those of the program it mirrors. Running the tape backwards makes the
gradients that autograd would make, in its order, and lets go of saved tensors when autograd does.

Sources: torch 2.13 autograd (`torch/csrc/autograd/engine.cpp`, `input_buffer.cpp`, `functions/accumulate_grad.h`):
nodes run in reverse order of creation; a saved tensor is released after its node has run; gradients that meet are
added in place when nothing else refers to one of them; a parameter's first gradient is taken over, not copied.
All sizes in bytes unless a name says elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Backward = Callable[["Value"], "Sequence[Value | None]"]


class Storage:
    """Bytes on a tape's device, given back when no value refers to them any more."""

    __slots__ = ("number", "owners", "size", "tape")

    def __init__(self, tape: Tape, requested: int) -> None:
        size = tape.rounding(requested)
        self.tape, self.size, self.owners = tape, size, 0
        self.number = len(tape.events)
        tape.events.append((self.number, requested))
        tape.live += size
        if tape.live > tape.peak:
            tape.peak = tape.live


class Value:
    """A tensor without content: `numel` elements of `width` bytes, and the node that gives it a gradient.

    A value without storage is a parameter: its bytes are counted elsewhere.
    """

    __slots__ = ("cast", "leaf", "node", "numel", "storage", "width")

    def __init__(self, numel: int, width: int, storage: Storage | None, *, leaf: bool = False) -> None:
        self.numel, self.width, self.storage, self.leaf = numel, width, storage, leaf
        self.node: Node | None = None
        self.cast: Value | None = None  # autocast's copy of a parameter
        if storage is not None:
            storage.owners += 1

    def __del__(self) -> None:
        storage = self.storage
        if storage is not None:
            storage.owners -= 1
            if not storage.owners:
                storage.tape.live -= storage.size
                storage.tape.events.append((storage.number, -1))

    def release(self) -> None:
        """Let go of the storage before the last Python variable does: what called with it has no use for it."""
        self.__del__()
        self.storage = None

    @property
    def needs_grad(self) -> bool:
        """Backward computes a gradient for it."""
        return self.leaf or self.node is not None


@dataclass(eq=False, slots=True)
class Node:
    """One step of the backward graph: where its gradients go, what makes them, and whether that takes saved tensors."""

    index: int
    targets: list[Value | Node | None]
    backward: Backward
    saves: bool = False


def parameter(numel: int, width: int, *, trainable: bool) -> Value:
    """A weight: no bytes on the tape; a leaf that gets a gradient if it is trainable."""
    return Value(numel, width, None, leaf=trainable)


class Tape:
    """Counts live and peak bytes of what runs on it, and notes every request and release in `events`: the number of a
    storage with the bytes that were asked for, and with -1 when they are given back.

    Args:
        rounding: what the allocator counts for a request of so many bytes.
        autocast: width that matrix operations convert to, 0 when there is no autocast.
        cuda: kernels are the GPU's (some differ from the CPU's in what they keep).
        half: 16-bit values are float16, for which CUDA has kernels that bfloat16 goes without.
    """

    def __init__(
        self,
        *,
        rounding: Callable[[int], int] = lambda size: size,
        autocast: int = 0,
        cuda: bool = True,
        half: bool = False,
    ) -> None:
        self.rounding, self.autocast, self.cuda, self.half = rounding, autocast, cuda, half
        self.live = self.peak = self.needed_peak = 0
        self.events: list[tuple[int, int]] = []
        self.needed_events = 0
        self.live_at_first_use: int | None = None
        self._saved = False
        self.grad_enabled = True
        self.keep_gradients = True
        self.parameter_gradient_bytes = 0
        self.casts: list[Value] = []
        self.attributes: dict[int, int] = {}
        self._nodes: list[Node] = []
        self._gradients: dict[Node, Value] = {}
        self._leaves: dict[int, tuple[Value, Value]] = {}
        self._uses: dict[int, int] = {}
        self._summed: set[int] = set()
        self._created = 0

    def mark(self) -> int:
        """Start measuring a new peak from here; returns what is alive."""
        self.peak = self.needed_peak = self.live
        return self.live

    def saves(self) -> None:
        """An operation puts a tensor away for backward: a recomputed forward has to come as far as this.

        Source: torch 2.13 utils/checkpoint.py: early stop, once as many tensors were packed as in the first forward.
        """
        self.needed_peak, self.needed_events = self.peak, len(self.events)
        self._saved = True

    def keep_as_attribute(self, value: Value) -> None:
        """A node keeps the tensor as a plain attribute, which backward does not release: it goes with the node."""
        if value.storage is not None:
            self.attributes[value.storage.number] = value.storage.size

    def new(self, numel: int, width: int) -> Value:
        """A fresh tensor."""
        return Value(numel, width, Storage(self, numel * width))

    def like(self, value: Value) -> Value:
        """A fresh tensor of the same size."""
        return self.new(value.numel, value.width)

    def input(self, numel: int, width: int, *, needs_grad: bool) -> Value:
        """A tensor that comes from outside, such as the previous layer's output."""
        value = self.new(numel, width)
        if needs_grad:
            self.record(value, (), lambda _grad: ())
        return value

    def record(self, out: Value, inputs: Sequence[Value], backward: Backward) -> Value:
        """Make `out` the result of an operation on `inputs`; `backward` gives a gradient for each of them."""
        saves, self._saved = self._saved, False
        if not self.grad_enabled or (inputs and not any(value.needs_grad for value in inputs)):
            return out
        targets = [value if value.leaf else value.node for value in inputs]
        for value in inputs:
            if value.leaf:
                self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        node = Node(self._created, targets, backward, saves)
        self._created += 1
        self._nodes.append(node)
        out.node = node
        return out

    def backward(self, out: Value, gradient: Value) -> None:
        """Run the graph of `out` backwards from its gradient; what was saved is gone afterwards.

        Nodes of tape inputs keep their gradient (`gradient_of`). `live_at_first_use`: what was alive when the first of
        the saved tensors was asked for.
        """
        self.live_at_first_use = None
        assert out.node is not None
        root = out.node
        del out
        self._gradients[root] = gradient
        del gradient, root
        while self._nodes:
            node = self._nodes.pop()
            grad = self._gradients.pop(node, None)
            if grad is None:
                continue
            if not node.targets:
                self._gradients[node] = grad
                continue
            if node.saves and self.live_at_first_use is None:
                self.live_at_first_use = self.live
            results = list(node.backward(grad))
            node.backward = _spent
            del grad
            targets = node.targets
            del node
            results.reverse()
            for target in targets:
                result = results.pop()
                if result is None or target is None:
                    continue
                self._receive(target, result)
                del result
            results.clear()

    def _receive(self, target: Value | Node, gradient: Value) -> None:
        if isinstance(target, Node):
            old = self._gradients.pop(target, None)
            self._gradients[target] = gradient if old is None else self._sum(old, gradient)
            return
        self._uses[id(target)] -= 1
        known = self._leaves.get(id(target))
        if known is not None and id(target) not in self._summed:
            self._summed.add(id(target))
            self.like(gradient)  # a matrix's first is a transposed view, which is not added to: the sum is another
        if known is None:
            if gradient.storage is not None:
                self.parameter_gradient_bytes += gradient.storage.size
            self._leaves[id(target)] = (target, gradient)
        if not self.keep_gradients and not self._uses[id(target)]:
            # all gradients of the leaf have met; what takes them up lets go of their sum
            self._leaves[id(target)] = (target, Value(target.numel, target.width, None))

    def _sum(self, one: Value, other: Value) -> Value:
        for value in (one, other):
            if value.storage is not None and value.storage.owners == 1:
                return value
        return self.like(one)

    def gradient_of(self, value: Value) -> Value | None:
        """The gradient that reached a tape input, and is not kept by the tape any longer."""
        assert value.node is not None
        return self._gradients.pop(value.node, None)

    def parameter_gradients(self) -> frozenset[int]:
        """Numbers of the storages that hold gradients of parameters."""
        return frozenset(grad.storage.number for _, grad in self._leaves.values() if grad.storage is not None)

    def forget(self) -> None:
        """Drop the graph without running it (a recomputed forward whose outputs are not needed)."""
        self._nodes.clear()
        self._gradients.clear()

    def view(self, value: Value) -> Value:
        """The same storage under another shape."""
        out = Value(value.numel, value.width, value.storage)
        return self.record(out, (value,), lambda grad: (Value(grad.numel, grad.width, grad.storage),))


def _spent(_grad: Value) -> Sequence[Value | None]:
    raise AssertionError("a node ran twice")


def detached(value: Value) -> Value:
    """What a node saves: the storage without the graph behind it."""
    return Value(value.numel, value.width, value.storage)
