"""What a segment of the model (a layer, the head) adds to memory: its peaks and what it leaves, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.training.tape.tape import Tape, Value

Forward = Callable[[Tape, Value], tuple[Value, list[Value]]]


Events = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a segment asks of the allocator and gives back, by numbers of its own; the input is number 0.

    Args:
        forward: with a graph; `out` is the output's number.
        needed: how many of these a forward that is run again comes to.
        plain, plain_out: without a graph (checkpointed forwards).
        between: given back when the forward of the model ends (autocast's copies), or the output where the graph does
            not hold it.
        backward: begins with the output's gradient (number `gradient`), leaves the input's (`reached`, None where there
            is none) and those of parameters (`made`).
    """

    forward: Events
    needed: int
    out: int
    between: Events
    backward: Events = ()
    gradient: int = -1
    reached: int | None = None
    made: frozenset[int] = frozenset()
    plain: Events = ()
    plain_out: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Bytes of one segment, relative to what was alive when it began.

    Args:
        forward_peak, forward_left: above, and at the end of, its forward; the input is dropped by its caller.
        forward_needed: peak up to the last tensor that its forward saves.
        gradients_before: gradients that its backward has made when it first asks for a saved tensor.
        backward_peak, backward_left: the same for its backward, which begins with the output's gradient alive.
        cast_bytes: converted copies of trained weights that autocast holds until the forward of the model ends;
            they are in forward_left too.
        cast_bytes_released: those of them that nothing in the graph needs, gone when the region ends.
        gradient_bytes: gradients of parameters made in backward.
        unit_bytes: those of them that are still there at its end.
        attribute_bytes: tensors that nodes keep as attributes, which go with the graph and not with backward.
    """

    forward_peak: int
    forward_left: int
    forward_needed: int
    gradients_before: int
    backward_peak: int
    backward_left: int
    cast_bytes: int
    cast_bytes_released: int
    gradient_bytes: int
    unit_bytes: int
    trace: Trace
    attribute_bytes: int = 0


def profile(
    new_tape: Callable[[], Tape],
    forward: Forward,
    *,
    numel: int,
    width: int,
    needs_grad: bool,
    keep_input: bool = False,
    keep_gradients: bool = True,
) -> Profile:
    """Run a segment forwards and backwards on a fresh tape.

    Args:
        needs_grad: the input has something to train below it.
        keep_input: the input stays alive through backward, as a checkpoint's does.
        keep_gradients: parameters keep their gradients; otherwise these are used up or added to others at once.
    """
    tape = new_tape()
    tape.keep_gradients = keep_gradients
    x = tape.input(numel, width, needs_grad=needs_grad)
    node = x.node
    start = tape.mark()
    first = len(tape.events)
    out, kept = forward(tape, x)
    held = [x] if keep_input else []
    del x
    ran = tuple(tape.events[first:])
    needed, number = tape.needed_events - first, out.storage.number if out.storage is not None else -1
    forward_peak, forward_needed, before_casts = tape.peak - start, tape.needed_peak - start, tape.live
    casts = sum(value.cast.storage.size for value in tape.casts if value.cast is not None and value.cast.storage)
    forward_left = before_casts - start
    if out.node is None:
        return Profile(
            forward_peak=forward_peak,
            forward_left=forward_left,
            forward_needed=forward_needed,
            gradients_before=0,
            backward_peak=0,
            backward_left=0,
            cast_bytes=casts,
            cast_bytes_released=casts,
            gradient_bytes=0,
            unit_bytes=0,
            trace=Trace(forward=ran, needed=needed, out=number, between=()),
        )
    ended = len(tape.events)
    release_casts(tape)
    released = before_casts - tape.live
    shell = _only_node(out)
    given = len(tape.events)
    gradient = tape.new(out.numel, out.width)
    assert gradient.storage is not None
    gradient_number, begun = gradient.storage.number, len(tape.events)
    del out
    between = tuple(tape.events[ended:given] + tape.events[begun:])
    begin, begun = tape.mark(), len(tape.events)
    tape.backward(shell, gradient)
    del gradient, shell
    if node is not None:
        handed_on = Value(numel, width, None)
        handed_on.node = node
        reached = tape.gradient_of(handed_on)
    else:
        reached = None
    held.clear()
    backward_peak = tape.peak - begin
    trace = Trace(
        forward=ran,
        needed=max(0, needed),
        out=number,
        between=between,
        backward=tuple(tape.events[begun:]),
        gradient=gradient_number,
        reached=None if reached is None or reached.storage is None else reached.storage.number,
        made=tape.parameter_gradients(),
    )
    left = tape.live - begin  # what the program keeps (the outputs object) stays until the step is over
    del kept
    made = tape.parameter_gradient_bytes
    del reached
    return Profile(
        forward_peak=forward_peak,
        forward_left=forward_left,
        forward_needed=forward_needed,
        gradients_before=0 if tape.live_at_first_use is None else tape.live_at_first_use - begin,
        backward_peak=backward_peak,
        backward_left=left,
        cast_bytes=casts,
        cast_bytes_released=released,
        gradient_bytes=made,
        unit_bytes=made,
        trace=trace,
        attribute_bytes=sum(tape.attributes.values()),
    )


def checkpointed(
    inside: Sequence[Profile],
    plain: Sequence[Plain],
    *,
    stream_bytes: int,
    reentrant: bool,
    units: bool = False,
    keeps_inputs: bool = False,
) -> Profile:
    """The profile of consecutive layers under one checkpoint.

    Args:
        inside: each layer with its graph, its input kept.
        plain: each layer's forward without a graph.
        stream_bytes: a layer's input.
        reentrant: the segment is run again to its end, and its output stays until its backward is over; otherwise only
            as far as tensors are saved.
        units: a layer's gradients are joined in one tensor, reduced, and gone when it is through.
        keeps_inputs: quantised layers keep their inputs in the forward without a graph too, until its nodes go.
    """
    live = forward_peak = 0
    for position, ran in enumerate(plain):
        forward_peak = max(forward_peak, live + ran.peak)
        live += ran.left - (stream_bytes if position else 0)  # the layer's input goes, but for the segment's own
    forward_left = live
    # a checkpoint that is not reentrant is run again when its backward asks for the first tensor
    live = recompute_peak = before = 0 if reentrant else inside[-1].gradients_before
    for one in inside:
        to_the_end = reentrant or one is not inside[-1]
        recompute_peak = max(recompute_peak, live + (one.forward_peak if to_the_end else one.forward_needed))
        live += one.forward_left - one.cast_bytes_released
    live -= before
    out = 0 if reentrant else stream_bytes
    live -= out
    backward_peak = recompute_peak
    for one in reversed(inside):
        backward_peak = max(backward_peak, live + one.backward_peak)
        live += one.backward_left
        if units:
            backward_peak = max(backward_peak, live + one.unit_bytes)
            live -= one.unit_bytes
    casts = sum(one.cast_bytes for one in inside)
    if keeps_inputs:
        live -= forward_left - stream_bytes
    return Profile(
        forward_peak=forward_peak,
        forward_left=forward_left,
        forward_needed=forward_peak,
        gradients_before=0,
        backward_peak=backward_peak,
        backward_left=live - (stream_bytes - out),
        cast_bytes=casts,
        cast_bytes_released=casts,
        gradient_bytes=sum(one.gradient_bytes for one in inside),
        unit_bytes=0 if units else sum(one.unit_bytes for one in inside),
        trace=replace(inside[-1].trace, plain=plain[-1].events, plain_out=plain[-1].out),
    )


def _only_node(out: Value) -> Value:
    """A value with the node of `out` but not its storage: the next segment's input is counted there."""
    shell = Value(out.numel, out.width, None)
    shell.node = out.node
    return shell


def release_casts(tape: Tape) -> None:
    """Autocast's region ends: its copies of parameters go, but for those that the graph saved."""
    for value in tape.casts:
        value.cast = None
    tape.casts.clear()


@dataclass(frozen=True, slots=True)
class Plain:
    """Peak and remainder of a forward without a graph, what it asks of the allocator, and its output's number."""

    peak: int
    left: int
    events: Events
    out: int


def without_graph(new_tape: Callable[[], Tape], forward: Forward, *, numel: int, width: int) -> Plain:
    """A forward that saves nothing, relative to its start; the input stays with the caller."""
    tape = new_tape()
    tape.grad_enabled = False
    x = tape.input(numel, width, needs_grad=False)
    start = tape.mark()
    first = len(tape.events)
    out, kept = forward(tape, x)
    number = out.storage.number if out.storage is not None else -1
    found = Plain(tape.peak - start, tape.live - start, tuple(tape.events[first:]), number)
    del out, kept, x
    return found
