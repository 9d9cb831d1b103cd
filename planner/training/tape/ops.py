"""Torch's operations on the tape: what each allocates, saves for backward, and makes in backward.

Every function is one call of the framework's forward. The comments name the autograd formula
(torch 2.13 tools/autograd/derivatives.yaml and the kernels it calls) where it is not plain from the code.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.training.tape import cuda
from planner.training.tape.tape import Tape, Value, detached

FP32 = 4


def reduced(tape: Tape, gradient: Value, target: Value) -> Value:
    """A gradient brought to the shape and type of what was broadcast or promoted."""
    if gradient.numel != target.numel:
        gradient = tape.new(target.numel, gradient.width)
    if gradient.width != target.width:
        gradient = tape.like(target)
    return gradient


def cast(tape: Tape, x: Value, width: int) -> Value:
    """`x.to(dtype)`: nothing when it has that type already; saves nothing."""
    if x.width == width:
        return x
    out = tape.new(x.numel, width)
    numel, before = x.numel, x.width
    return tape.record(out, (x,), lambda grad: (tape.new(numel, before),))


def copy(tape: Tape, x: Value) -> Value:
    """`x.clone()` or a `.contiguous()` that has to copy."""
    return tape.record(tape.like(x), (x,), lambda grad: (grad_alias(grad),))


def relaid(tape: Tape, x: Value) -> Value:
    """A view in another order, whose gradient has to be copied back."""
    out, whole = Value(x.numel, x.width, x.storage), shape(x)
    return tape.record(out, (x,), lambda grad: (tape.like(whole),))


def grad_alias(grad: Value) -> Value:
    """The same gradient handed on."""
    return Value(grad.numel, grad.width, grad.storage)


def add(tape: Tape, a: Value, b: Value) -> Value:
    """`a + b`: saves nothing; both sides get the gradient itself."""
    out = tape.new(max(a.numel, b.numel), max(a.width, b.width))
    shape_a, shape_b = shape(a), shape(b)
    return tape.record(out, (a, b), lambda grad: [reduced(tape, grad_alias(grad), s) for s in (shape_a, shape_b)])


def shape(value: Value) -> Value:
    """Size and type of a value, without its storage."""
    return Value(value.numel, value.width, None)


def scale(tape: Tape, x: Value) -> Value:
    """`x * number`, `-x`, `x / number`: saves nothing, one gradient."""
    return tape.record(tape.like(x), (x,), lambda grad: (tape.like(grad),))


def shift(tape: Tape, x: Value) -> Value:
    """`x + number`: the gradient passes through."""
    return tape.record(tape.like(x), (x,), lambda grad: (grad_alias(grad),))


def mul(tape: Tape, a: Value, b: Value) -> Value:
    """`a * b`: each side is saved if the other needs a gradient."""
    if a.needs_grad or b.needs_grad:
        tape.saves()
    out = tape.new(max(a.numel, b.numel), max(a.width, b.width))
    saved_a = detached(a) if b.needs_grad else None
    saved_b = detached(b) if a.needs_grad else None
    shape_a, shape_b = shape(a), shape(b)

    def backward(grad: Value) -> Sequence[Value | None]:
        grad_a = reduced(tape, tape.like(grad), shape_a) if saved_b is not None else None
        grad_b = reduced(tape, tape.like(grad), shape_b) if saved_a is not None else None
        return grad_a, grad_b

    return tape.record(out, (a, b), backward)


def square(tape: Tape, x: Value) -> Value:
    """`x.pow(2)`: saves x. Backward is grad * (2 * x.pow(1)), three temporaries in one expression."""
    if x.needs_grad:
        tape.saves()
    out, saved = tape.like(x), detached(x)

    def backward(grad: Value) -> Sequence[Value | None]:
        power = tape.like(saved)
        twice = tape.like(saved)
        result = tape.like(saved)
        del power, twice
        return (result,)

    return tape.record(out, (x,), backward)


def mean(tape: Tape, x: Value, rows: int) -> Value:
    """`x.mean(-1)` to `rows` values: backward expands (a view) and divides."""
    out, numel = tape.new(rows, x.width), x.numel
    return tape.record(out, (x,), lambda grad: (tape.new(numel, grad.width),))


def keep_result(tape: Tape, x: Value, width: int | None = None) -> Value:
    """A function whose backward needs its result (rsqrt, exp, sigmoid, tanh, log-softmax)."""
    out = tape.new(x.numel, width or x.width)
    if x.needs_grad:
        tape.saves()
    saved, before = detached(out), x.width

    def backward(grad: Value) -> Sequence[Value | None]:
        assert saved is not None
        return (tape.new(saved.numel, before),)

    return tape.record(out, (x,), backward)


def softmax(tape: Tape, x: Value, width: int | None = None) -> Value:
    """`softmax(x)`: keeps its result; CUDA multiplies gradient and result in a tensor of its own before its kernel."""
    out = tape.new(x.numel, width or x.width)
    if x.needs_grad:
        tape.saves()
    saved, before = detached(out), x.width

    def backward(grad: Value) -> Sequence[Value | None]:
        assert saved is not None
        temporary = tape.new(1, cuda.softmax_backward_bytes(grad.numel, grad.width)) if tape.cuda else None
        result = tape.new(saved.numel, before)
        del temporary
        return (result,)

    return tape.record(out, (x,), backward)


def keep_input(tape: Tape, x: Value) -> Value:
    """A function whose backward needs its input (silu, gelu, relu in place of its result)."""
    if x.needs_grad:
        tape.saves()
    out, saved = tape.like(x), detached(x)
    return tape.record(out, (x,), lambda grad: (tape.like(saved),))


def part(tape: Tape, x: Value, numel: int) -> Value:
    """A slice: a view. Backward makes zeros of the whole and copies the gradient in."""
    out, whole, width = Value(numel, x.width, x.storage), x.numel, x.width
    return tape.record(out, (x,), lambda grad: (tape.new(whole, width),))


def split(tape: Tape, x: Value, sizes: Sequence[int]) -> list[Value]:
    """`x.split(sizes)` or `chunk`: views. Backward concatenates the pieces' gradients once."""
    # One node with several outputs: its gradients are gathered by a node in front of it.
    numel, width = x.numel, x.width
    gathered = tape.record(Value(numel, width, x.storage), (x,), lambda grad: (tape.new(numel, width),))
    pieces = []
    for size in sizes:
        piece = Value(size, width, x.storage)
        pieces.append(tape.record(piece, (gathered,), lambda grad: (grad_alias(grad),)))
    return pieces


def cat(tape: Tape, parts: Sequence[Value]) -> Value:
    """`torch.cat`: saves nothing; gradients are views of the whole."""
    out = tape.new(sum(p.numel for p in parts), max(p.width for p in parts))
    sizes = [p.numel for p in parts]
    return tape.record(out, tuple(parts), lambda grad: [Value(n, grad.width, grad.storage) for n in sizes])


def expand(tape: Tape, x: Value, times: int) -> Value:
    """`x.expand(...).reshape(...)`: copies `times` over; backward sums."""
    if times == 1:
        return x
    out, numel, width = tape.new(x.numel * times, x.width), x.numel, x.width
    return tape.record(out, (x,), lambda grad: (tape.new(numel, width),))


def dropout(tape: Tape, x: Value, probability: float) -> Value:
    """`F.dropout`: keeps a mask, of a byte an element on CUDA.

    The CPU multiplies by noise of the input's own type (aten native/Dropout.cpp: native_dropout is for CUDA,
    `is_fused_kernel_acceptable`; otherwise `_dropout_impl`).
    """
    if not probability:
        return x
    mask = tape.new(x.numel, 1 if tape.cuda else x.width)
    if x.needs_grad:
        tape.saves()
    out = tape.like(x)

    def backward(grad: Value) -> Sequence[Value | None]:
        assert mask is not None
        return (tape.like(grad),)

    return tape.record(out, (x,), backward)


def autocast_input(tape: Tape, x: Value) -> Value:
    """What a matrix operation sees under autocast: a converted copy; a trainable parameter's is kept (cached)."""
    if not tape.autocast or x.width == tape.autocast or x.width < 2:
        return x
    if not x.leaf:
        return cast(tape, x, tape.autocast)
    if x.cast is None:
        x.cast = cast(tape, x, tape.autocast)
        tape.casts.append(x)
    return x.cast


def matmul(tape: Tape, x: Value, weight: Value, out_numel: int) -> Value:
    """A matrix product, which autocast converts the sides of."""
    return product(tape, autocast_input(tape, x), autocast_input(tape, weight), out_numel)


def product(tape: Tape, x: Value, weight: Value, out_numel: int) -> Value:
    """A matrix product as it is: each side is saved if the other needs a gradient."""
    if x.needs_grad or weight.needs_grad:
        tape.saves()
    out = tape.new(out_numel, x.width)
    saved_x = detached(x) if weight.needs_grad else None
    saved_w = detached(weight) if x.needs_grad else None
    shape_x, shape_w = shape(x), shape(weight)

    def backward(grad: Value) -> Sequence[Value | None]:
        grad_w = tape.like(shape_w) if saved_x is not None else None
        grad_x = tape.like(shape_x) if saved_w is not None else None
        return grad_x, grad_w

    return tape.record(out, (x, weight), backward)


def take_maximum(tape: Tape, x: Value, index: Value) -> Value:
    """`x - x.max(-1, keepdim=True).values`: keeps the index of the maximum."""
    out, saved = tape.like(x), detached(index)
    tape.saves()

    def backward(grad: Value) -> Sequence[Value | None]:
        assert saved.numel
        spread = tape.like(grad)  # the maxima's own gradient, zero elsewhere
        del spread
        return (tape.like(grad),)

    return tape.record(out, (x,), backward)


def softmax_fp32(tape: Tape, x: Value) -> Value:
    """`softmax(x, dtype=float32)`: keeps the fp32 result.

    The CUDA kernel reads float16 and gives its gradient in float16; bfloat16, and every type on the CPU, is converted
    first (ATen/native/SoftMax.cpp softmax: `input_.is_cuda() && input_.scalar_type() == ScalarType::Half`).
    """
    if tape.cuda and tape.half and x.width < FP32 and not tape.autocast:
        return softmax(tape, x, FP32)
    return softmax(tape, cast(tape, x, FP32))


def attention_kernel(
    tape: Tape,
    query: Value,
    key: Value,
    value: Value,
    *,
    tokens: int,
    heads: int,
    groups: int,
    mask: Value | None = None,
    out_numel: int | None = None,
) -> Value:
    """A fused attention: keeps q, k, v, its result and the log-sum-exp (fp32 a head and token).

    Backward, CUDA flash: a row sum (fp32 a head and token), dq in fp32, and with grouped heads dk and dv at full heads
    before they are summed. `groups`: query heads that share a key head in the kernel.
    Source: flash_attn csrc/flash_attn/flash_api.cpp mha_bwd (dq_accum, softmax_d, dk_expanded).
    """
    query, key, value = (autocast_input(tape, item) for item in (query, key, value))
    out = tape.new(value.numel * groups if out_numel is None else out_numel, query.width)
    sums = tape.new(tokens * heads, FP32)
    tape.saves()
    saved = [detached(item) for item in (query, key, value, out)]
    if mask is not None:
        saved.append(mask)

    def backward(grad: Value) -> Sequence[Value | None]:
        assert sums is not None
        q, k, v = saved[:3]
        held = []
        if tape.cuda:
            held.append(tape.new(tokens * heads, FP32))
            held.append(tape.new(q.numel, FP32))
            if groups > 1:
                held += [tape.new(k.numel * groups, k.width), tape.new(v.numel * groups, v.width)]
        result = tape.like(q), tape.like(k), tape.like(v)
        held.clear()
        return result

    return tape.record(out, (query, key, value), backward)


def kernel(tape: Tape, inputs: Sequence[Value], numel: int, width: int, kept: Sequence[Value] = ()) -> Value:
    """A fused kernel that keeps its inputs and `kept`, and makes a gradient for each input."""
    out = tape.new(numel, width)
    tape.saves()
    saved, extra = [detached(x) for x in inputs], list(kept)
    wanted = [x.needs_grad for x in inputs]

    def backward(grad: Value) -> Sequence[Value | None]:
        assert len(extra) == len(kept)
        return [tape.like(shape(x)) if need else None for x, need in zip(saved, wanted, strict=True)]

    return tape.record(out, tuple(inputs), backward)


def own_storage(tape: Tape, x: Value) -> Value:
    """x, or a copy of it where it is a view of something larger."""
    if x.storage is None or x.storage.size <= tape.rounding(x.numel * x.width):
        return x
    return copy(tape, x)
