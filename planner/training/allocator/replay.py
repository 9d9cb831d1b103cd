"""Steps of a fine-tune replayed through the caching allocator: what is reserved on one GPU, and what a card must have.

The requests of every segment come from the tape (`Trace`), in the program's order; those of the weights and of the
optimizer from the states. The first step makes the optimizer's states, and later ones find the cache as it was left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from planner.training.allocator.caching import Block, CachingAllocator
from planner.training.tape.profiles import Events, Trace

_STEPS: Final = 2
_GATHERS, _REDUCES = 1, 2  # streams
_IN_FLIGHT: Final = 2


@dataclass(frozen=True, slots=True)
class Loaded:
    """A weight as it comes to the card: bytes that arrive first and go (0: none), bytes that stay, and what replaces
    them when loading is over (prepare_model_for_kbit_training's fp32 copy; 0: nothing)."""

    arriving: int
    kept: tuple[int, ...]
    replaced_by: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """FSDP's units: bytes of each layer gathered, and of the root; ranks that gradients are divided over, and how many
    times wider they are then; whether inputs and their gradients stay until backward ends.

    Gathered parameters come from the stream that gathers, reduced gradients from the one that reduces, and streams do
    not share blocks. Source: torch 2.13 distributed/fsdp/_flat_param.py _alloc_padded_unsharded_flat_param,
    _runtime_utils.py _reduce_grad (`_post_backward_stream`), and _limiter_utils.py (two gathers at once).
    """

    layers: Sequence[int]
    root: int
    ranks: int
    upcast: int = 1
    holds_backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a step asks for.

    Args:
        loaded: weights in order. workspaces: taken on the first products, never given back.
        stream: the embedding's output. shared: rotary tables, ids, masks, of one step.
        layers: traces, bottom first. checkpointed: layers are run again; reentrant: to their end.
        head: final norm, logits and loss, on the last stage.
        states: of the optimizer, made in the first step. step: what its step makes and drops.
        embedding_gradient: made when backward reaches the bottom (0: not trained).
        sharded: of FSDP (None: not sharded).
    """

    loaded: Sequence[Loaded]
    workspaces: Sequence[int]
    stream: int
    shared: Sequence[int]
    layers: Sequence[Trace]
    head: Trace | None
    checkpointed: bool
    reentrant: bool
    states: Sequence[int]
    step: Sequence[int]
    embedding_gradient: int = 0
    sharded: Units | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Peaks in bytes."""

    allocated: int
    reserved: int


def replay(script: Script, limit: int | None = None, *, expandable: bool = False) -> Replayed:
    """The peaks of loading and two steps, with so many bytes for the allocator; `expandable`: segments grow."""
    run = _Run(script, limit, expandable)
    run.load()
    for _ in range(_STEPS):
        run.step()
    return Replayed(run.memory.peak_allocated, run.memory.peak_reserved)


class _Run:
    def __init__(self, script: Script, limit: int | None, expandable: bool) -> None:
        self.script = script
        self.memory = CachingAllocator(limit, expandable=expandable)
        self.gathered: list[Block] = []
        self.gradients: list[Block] = []
        self.shares: list[Block] = []
        self.first = True

    def load(self) -> None:
        memory = self.memory
        replaced: list[tuple[list[Block], int]] = []
        for one in self.script.loaded:
            arriving = memory.allocate(one.arriving) if one.arriving else None
            kept = [memory.allocate(size) for size in one.kept if size]
            if arriving is not None:
                memory.release(arriving)
            if one.replaced_by:
                replaced.append((kept, one.replaced_by))
        for kept, size in replaced:
            memory.allocate(size)
            for block in kept:
                memory.release(block)

    def step(self) -> None:
        """Forward, backward and the optimizer's step."""
        memory, script = self.memory, self.script
        held = [memory.allocate(size) for size in script.shared]
        stream = memory.allocate(script.stream)
        known: list[dict[int, Block]] = []
        if script.sharded is not None:
            held.append(memory.allocate(script.sharded.root, _GATHERS))
        for index, trace in enumerate(script.layers):
            self._gather(index)
            handles = {0: stream}
            if script.checkpointed:
                stream.references += 1  # the checkpoint's
                self._run(trace.plain, handles)
                stream = handles.pop(trace.plain_out)
                memory.release(handles[0])
                known.append({0: handles[0]})
                held += [block for number, block in handles.items() if number]
            else:
                stream = self._forward(trace, handles)
                known.append(handles)
        if self.first:
            for size in script.workspaces:
                memory.allocate(size)
        gradient = self._head(stream, held)
        for index in range(len(script.layers) - 1, -1, -1):
            self._gather(index)
            if script.checkpointed:
                self._again(script.layers[index], known[index])
            self._hold(known[index].get(0), held)
            gradient = self._backward(script.layers[index], known[index], gradient)
            self._hold(gradient, held)
            self._reduce()
        self._release(self.gathered)
        self.gathered = []
        self._finish(held, gradient)

    def _gather(self, index: int) -> None:
        """A layer's unit, with one more under way."""
        if self.script.sharded is None:
            return
        self.gathered.append(self.memory.allocate(self.script.sharded.layers[index], _GATHERS))
        if len(self.gathered) > _IN_FLIGHT:
            self.memory.release(self.gathered.pop(0))

    def _hold(self, block: Block | None, held: list[Block]) -> None:
        """See `sharding.holds_backward`."""
        if block is not None and self.script.sharded is not None and self.script.sharded.holds_backward:
            block.references += 1
            held.append(block)

    def _reduce(self) -> None:
        """The gradients that a unit made are joined, reduced, and gone but for this rank's share."""
        sharded = self.script.sharded
        if sharded is None or not self.gradients:
            return
        size = sum(block.size for block in self.gradients)
        joined = self.memory.allocate(size)
        self._release(self.gradients)
        self.gradients = []
        self.shares.append(self.memory.allocate(-(-size * sharded.upcast // sharded.ranks), _REDUCES))
        self.memory.release(joined)

    def _forward(self, trace: Trace, handles: dict[int, Block]) -> Block:
        """The new stream; the graph may hold it too."""
        self._run(trace.forward, handles)
        out = handles[trace.out]
        if (trace.out, -1) in trace.between:
            del handles[trace.out]
        else:
            out.references += 1
        return out

    def _again(self, trace: Trace, handles: dict[int, Block]) -> None:
        """A checkpointed layer's forward with its graph: to the last saved tensor, or reentrant to its end."""
        if self.script.reentrant:
            self._run(trace.forward, handles)
            self._run(trace.between, handles)
            return
        self._run(trace.forward[: trace.needed], handles)
        self._run((event for event in trace.forward[trace.needed :] if event[1] < 0), handles)
        self._run(trace.between, handles)

    def _backward(self, trace: Trace, handles: dict[int, Block], gradient: Block | None) -> Block | None:
        if gradient is None or not trace.backward:
            self._release(handles.values())
            return None
        handles[trace.gradient] = gradient
        self._run(trace.backward, handles)
        reached = handles.pop(trace.reached, None) if trace.reached is not None else None
        self.gradients += [block for number, block in handles.items() if number in trace.made]
        self._release([block for number, block in handles.items() if number not in trace.made])
        return reached

    def _head(self, stream: Block, held: list[Block]) -> Block | None:
        trace = self.script.head
        if trace is None:
            held.append(stream)
            return self.memory.allocate(stream.size)
        handles = {0: stream}
        self._run(trace.forward, handles)
        loss = handles.pop(trace.out)
        self._run((event for event in trace.between if event[0] != trace.out), handles)
        self.memory.release(loss)
        return self._backward(trace, handles, self.memory.allocate(4))

    def _finish(self, held: list[Block], gradient: Block | None) -> None:
        memory, script = self.memory, self.script
        if gradient is not None:
            held.append(gradient)
        if script.embedding_gradient:
            self.gradients.append(memory.allocate(script.embedding_gradient))
        self._reduce()
        self._release(held)
        if self.first:
            for size in script.states:
                memory.allocate(size)
        self.first = False
        self._release([memory.allocate(size) for size in script.step])
        self._drop_gradients()

    def _drop_gradients(self) -> None:
        self._release([*self.gradients, *self.shares])
        self.gradients, self.shares = [], []

    def _release(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.memory.release(block)

    def _run(self, events: Iterable[tuple[int, int]] | Events, handles: dict[int, Block]) -> None:
        allocate, release = self.memory.allocate, self.memory.release
        for number, size in events:
            if size >= 0:
                handles[number] = allocate(size)
            elif number in handles:
                release(handles.pop(number))
