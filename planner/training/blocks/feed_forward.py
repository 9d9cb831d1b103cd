"""The dense feed-forward: gated or plain.

Source: transformers 5.24 modeling_llama.py LlamaMLP; liger_kernel 0.5 ops/swiglu.py (keeps gate and up).
"""

from __future__ import annotations

from planner.model.kinds.feed_forward import Mlp
from planner.training.blocks.block import Block
from planner.training.blocks.linear import linear
from planner.training.tape import ops
from planner.training.tape.tape import Tape, Value, detached


def mlp(block: Block, kind: Mlp, x: Value) -> Value:
    """down(activation(gate(x)) * up(x)), or down(activation(up(x)))."""
    tape, inner, names = block.tape, block.sub(kind.names.block), kind.names
    if not kind.gated:
        return _down(inner, kind, activation(block, kind.activation, linear(inner, names.up, x)))
    if kind.fused:
        both = linear(inner, names.fused, x)
        gate, up = ops.split(tape, both, [both.numel // 2] * 2)
        del both
        return _down(inner, kind, ops.mul(tape, up, activation(block, kind.activation, gate)))
    if block.kernels.mlp == "liger":
        return _down(inner, kind, _silu_mul(block, linear(inner, names.gate, x), linear(inner, names.up, x)))
    return _down(
        inner,
        kind,
        ops.mul(tape, activation(block, kind.activation, linear(inner, names.gate, x)), linear(inner, names.up, x)),
    )


def _down(inner: Block, kind: Mlp, hidden: Value) -> Value:
    return linear(inner, kind.names.down, ops.dropout(inner.tape, hidden, inner.kernels.dropout.inner))


def activation(block: Block, name: str, x: Value) -> Value:
    """The activation function; those written in Python keep every intermediate they multiply with."""
    tape = block.tape
    if name == "relu2":
        return ops.square(tape, ops.keep_result(tape, x))
    if name == "relu":
        return ops.keep_result(tape, x)
    if name in ("gelu_new", "gelu_fast") and not block.kernels.fused_activation:
        return _gelu_in_python(tape, x)
    return ops.keep_input(tape, x)


def clamped_swiglu(tape: Tape, both: Value) -> Value:
    """(clamp(up) + 1) * clamp(gate) * sigmoid(alpha * clamp(gate)), gate and up being every other column.

    Source: transformers 5.24 modeling_gpt_oss.py GptOssExperts._apply_gate.
    """
    half = both.numel // 2
    gate, up = ops.part(tape, both, half), ops.part(tape, both, half)
    gate = ops.keep_input(tape, gate)
    up = ops.keep_input(tape, up)
    glu = ops.mul(tape, gate, ops.keep_result(tape, ops.scale(tape, gate)))
    del gate
    return ops.mul(tape, ops.shift(tape, up), glu)


def _gelu_in_python(tape: Tape, x: Value) -> Value:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))), an operation at a time (transformers NewGELUActivation)."""
    inner = ops.scale(tape, ops.add(tape, x, ops.scale(tape, ops.square(tape, x))))
    bent = ops.shift(tape, ops.keep_result(tape, inner))
    return ops.mul(tape, ops.scale(tape, x), bent)


def _silu_mul(block: Block, gate: Value, up: Value) -> Value:
    """One kernel: keeps gate and up, makes both gradients in their place."""
    tape = block.tape
    out, kept = tape.like(gate), [detached(gate), detached(up)]
    tape.saves()
    return tape.record(out, (gate, up), lambda grad: [Value(k.numel, k.width, k.storage) for k in kept])
