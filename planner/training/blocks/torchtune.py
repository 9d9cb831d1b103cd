"""What torchtune's modules do in their own way: projections, rotary embedding, 4-bit matrices that torchao unpacks.

Sources: torchtune 0.6.1 modules/position_embeddings.py, models/phi3/_position_embeddings.py,
models/qwen2/_positional_embeddings.py; torchao 0.15 dtypes/nf4tensor.py NF4Tensor.get_original_weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.model.kinds.attention import Attention
from planner.model.spec import ModelSpec
from planner.training.blocks.block import Block, Weight
from planner.training.tape import ops
from planner.training.tape.tape import Tape, Value

FP32: Final = 4
_INDEX: Final = 8  # bytes: 4-bit codes become int64 to look their values up
_HALVES_IN_FP32: Final = frozenset({"phi3"})
_HALVES: Final = frozenset({"qwen2", "qwen3"})


def tables_bytes(spec: ModelSpec, *, adapters: bool, cloned: bool) -> int:
    """Rotary tables, which are made in fp32 for all positions of the model when it is built.

    One for all layers; one for each where the attention with adapters makes its own, or the layers are copies of the
    first. Llama 3.1's layers are made one by one and handed the same table.

    Args:
        cloned: layers are made as copies of one (releases before 0.6).

    Source: torchtune 0.6.1 models/*/_component_builders.py, 0.4.0 modules/transformer.py _get_clones.
    """
    rotary_dim = max((getattr(m, "rotary_dim", 0) for layer in spec.layers for m in layer.mixers), default=0)
    handed_on = any(table.scaling == "llama3" for table in spec.rope_tables)
    repeated = spec.model_type in _HALVES | _HALVES_IN_FP32  # a cosine and a sine for each element, not for each pair
    one = spec.max_position_embeddings * rotary_dim * FP32 * (2 if repeated else 1)
    each = (cloned or adapters) and not handed_on
    return one * (len(spec.layers) if each else 1)


def rotary(block: Block, kind: Attention, x: Value) -> Value:
    """Queries or keys turned: pairs of neighbours in fp32, or (Phi-3, Qwen 2) half of a head against the other."""
    tape = block.tape
    if block.model_type in _HALVES:
        # the table is converted for every call, and multiplication keeps the copies
        cosine, sine = (tape.new(block.seq * kind.rotary_dim, x.width) for _ in range(2))
        return _halves(tape, x, cosine, sine)
    if block.model_type in _HALVES_IN_FP32:
        table = block.constant(block.seq * kind.rotary_dim, FP32)
        return ops.cast(tape, _halves(tape, x, table, table), x.width)
    return _neighbours(tape, x, block.constant(block.seq * kind.rotary_dim // 2, FP32))


def _halves(tape: Tape, x: Value, cosine: Value, sine: Value) -> Value:
    half = x.numel // 2
    first, second = ops.part(tape, x, half), ops.part(tape, x, half)
    rotated = ops.cat(tape, (ops.scale(tape, second), first))
    return ops.add(tape, ops.mul(tape, x, cosine), ops.mul(tape, rotated, sine))


def _neighbours(tape: Tape, x: Value, table: Value) -> Value:
    before, half = x.width, x.numel // 2
    x = ops.cast(tape, x, FP32)

    def product() -> Value:
        return ops.mul(tape, ops.part(tape, x, half), table)

    even = _minus(tape, product(), product())
    odd = ops.add(tape, product(), product())
    both = ops.cat(tape, (even, odd))
    del even, odd
    return ops.cast(tape, both, before)


def _minus(tape: Tape, a: Value, b: Value) -> Value:
    """`a - b`: the gradient itself, and a negated copy of it."""

    def backward(grad: Value) -> Sequence[Value | None]:
        return ops.grad_alias(grad), tape.like(grad)

    return tape.record(tape.like(a), (a, b), backward)


def unpacked(tape: Tape, weight: Weight) -> Value:
    """The matrix that torchao makes of 4-bit codes in eager mode: int64 indices of both halves, values, scaled values.

    All of them are alive when the halves are put together: 14 bytes an element, of which 2 are the result.
    """
    half = weight.numel // 2
    indices = [tape.new(half, _INDEX) for _ in range(2)]
    values = [tape.new(half, weight.width) for _ in range(2)]
    scaled = []
    for _ in values:
        repeated = tape.new(half, weight.width)
        scaled.append(tape.new(half, weight.width))
        del repeated
    out = tape.new(weight.numel, weight.width)
    del indices, values, scaled
    return out
