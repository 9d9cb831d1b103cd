"""Operations on rows of tokens: picked by index for experts, spread over ranks for sequence parallelism."""

from __future__ import annotations

from collections.abc import Sequence

from planner.training.tape import cuda
from planner.training.tape.ops import grad_alias, shape
from planner.training.tape.tape import Tape, Value, detached


def gather_rows(tape: Tape, x: Value, numel: int, index: Value) -> Value:
    """`x[index]`: keeps the index; backward adds into zeros of the whole."""
    tape.saves()
    out, saved, whole, rows = tape.new(numel, x.width), detached(index), shape(x), index.numel

    def backward(grad: Value) -> Sequence[Value | None]:
        assert saved.numel
        result = tape.like(whole)
        if tape.cuda:
            sorting = tape.new(1, cuda.index_put_bytes(rows))
            del sorting
        return (result,)

    return tape.record(out, (x,), backward)


def add_rows(tape: Tape, total: Value, rows: Value, index: Value) -> Value:
    """`total.index_add_(0, index, rows)`: in place; keeps the index and the rows; the rows' gradient is gathered.

    Source: torch 2.13 tools/autograd/derivatives.yaml index_add: `grad.index_select(dim, index).expand_as(source)`.
    """
    out = Value(total.numel, total.width, total.storage)
    tape.saves()
    saved = [detached(index), detached(rows)]
    small = shape(rows)

    def backward(grad: Value) -> Sequence[Value | None]:
        assert saved
        return grad_alias(grad), tape.like(small)

    return tape.record(out, (total, rows), backward)


def split_apart(tape: Tape, x: Value, sizes: Sequence[int]) -> list[Value]:
    """`x.split(sizes)`: views; the pieces' gradients wait for one another, and are then put side by side.

    Source: torch 2.13 autograd: SplitWithSizesBackward0 is one node with as many inputs as there are pieces.
    """
    waiting: list[Value] = []
    numel, width = x.numel, x.width

    def gather(_grad: Value) -> Sequence[Value | None]:
        whole = tape.new(numel, width)
        waiting.clear()
        return (whole,)

    def wait(grad: Value) -> Sequence[Value | None]:
        waiting.append(grad_alias(grad))
        return (Value(0, width, None),)

    gathered = tape.record(Value(numel, width, x.storage), (x,), gather)
    return [tape.record(Value(size, width, x.storage), (gathered,), wait) for size in sizes]


def collect(tape: Tape, x: Value, times: int) -> Value:
    """All-gather of a sequence-parallel tensor; backward scatters the sum."""
    if times == 1:
        return x
    whole = shape(x)
    return tape.record(tape.new(x.numel * times, x.width), (x,), lambda grad: (tape.like(whole),))


def scatter(tape: Tape, x: Value, times: int) -> Value:
    """Reduce-scatter of a partial sum along the sequence; backward gathers."""
    if times == 1:
        return x
    whole = shape(x)
    return tape.record(tape.new(x.numel // times, x.width), (x,), lambda grad: (tape.like(whole),))
