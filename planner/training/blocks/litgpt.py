"""litgpt's attention: one product for queries, keys and values with one adapter, rotary in fp32, heads laid out anew.

The differences from transformers' that keep or make bytes:

qkv        q, k and v are views of one storage; without shared keys, SDPA saves v, and with it the whole storage
adapter    one dropout and one A for all that are adapted, B as a convolution over channels first; where one of the
           three has none, the result is put into zeros of the full width, for which its own values and indices are kept
rotary     the tables are fp32 (made by `rope_cache` when `fit` sets max_seq_length), so the turned halves are fp32 too;
           `cat` with the unturned rest, even if that is empty, copies every head
keys       repeated to all heads before the kernel
windows    a layer with a sliding window hands SDPA a matrix of sequence x sequence of its own, which the kernel keeps

Source: litgpt 0.5.13 model.py CausalSelfAttention, apply_rope, do_softcapping; lora.py LoRAQKVLinear; torch 2.13
derivatives.yaml index_copy (`source` is saved), convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.model.kinds.attention import Attention
from planner.training.blocks.block import Adapter, Block, Weight
from planner.training.blocks.linear import linear
from planner.training.blocks.norms import norm
from planner.training.stacks.habits import has_habit
from planner.training.tape import ops, row_ops
from planner.training.tape.tape import Value, detached

FP32 = 4
_JOINED = "qkv"
_INDEX = 8  # bytes of an index


def has_attention_of(kind: Attention) -> bool:
    """The block is one that litgpt has."""
    return kind.owns_key_value and not kind.value_from_key and not kind.gated_query


def attention(block: Block, kind: Attention, x: Value) -> Value:
    """The output of the block's attention for a normed input x."""
    tape, inner = block.tape, block.sub(kind.names.block)
    joined = _projected(inner, kind, x)
    sizes = [block.tokens * size for size in (kind.query_size, kind.key_size, kind.value_size)]
    query, key, value = row_ops.split_apart(tape, joined, sizes)
    del joined
    if kind.query_norm is not None:
        query = norm(inner, kind.query_norm, query)
    if kind.key_norm is not None:
        key = norm(inner, kind.key_norm, key)
    query, key = _turned(block, kind, query), _turned(block, kind, key)
    groups = kind.num_attention_heads // kind.num_key_value_heads
    key, value = ops.expand(tape, key, groups), ops.expand(tape, value, groups)
    mask = tape.new(block.seq * block.seq, query.width) if kind.sliding_window is not None else None
    if has_habit(block.model_type, "softcapped_attention"):
        out = _softcapped(block, kind, query, key, value)
    else:
        out = ops.attention_kernel(
            tape, query, key, value, tokens=block.tokens, heads=kind.num_attention_heads, groups=1, mask=mask
        )
    del query, key, value, mask
    return linear(inner, kind.names.output, ops.copy(tape, out))  # heads side by side again


def _turned(block: Block, kind: Attention, x: Value) -> Value:
    """Rotary on the first part of every head, and the rest beside it."""
    tape = block.tape
    if not kind.rotary_dim:
        return x
    numel = x.numel // kind.head_dim * kind.rotary_dim
    whole = kind.rotary_dim == kind.head_dim
    head = x if whole else ops.part(tape, x, numel)
    table = block.constant(block.seq * kind.rotary_dim, FP32)
    first, second = ops.part(tape, head, numel // 2), ops.part(tape, head, numel // 2)
    rotated = ops.cat(tape, (ops.scale(tape, second), first))
    turned = ops.add(tape, ops.mul(tape, head, table), ops.mul(tape, rotated, table))
    turned = ops.cast(tape, turned, x.width)
    return ops.cat(tape, (turned, ops.part(tape, x, x.numel - numel)))


def _softcapped(block: Block, kind: Attention, query: Value, key: Value, value: Value) -> Value:
    """softmax(cap * tanh(q k^T / cap)) v, a matrix of sequence x sequence after the other; masks are added and gone."""
    tape, width = block.tape, query.width
    size = block.batch * kind.num_attention_heads * block.seq * block.seq
    scores = ops.scale(tape, ops.matmul(tape, query, key, size))
    scores = ops.scale(tape, ops.keep_result(tape, ops.scale(tape, scores)))
    mask = tape.new(block.seq * block.seq, width)
    scores = ops.shift(tape, scores)
    del mask
    scores = ops.cast(tape, ops.softmax_fp32(tape, scores), width)
    return ops.matmul(tape, scores, value, block.tokens * kind.output_input_size)


def _projected(inner: Block, kind: Attention, x: Value) -> Value:
    """Queries, keys and values in one storage."""
    names = (kind.names.query, kind.names.key, kind.names.value)
    parts = [inner.spec_of(f"{name}.weight") for name in names]
    whole = replace(parts[0], out_features=sum(part.out_features for part in parts), adapter=None)
    joined = replace(inner, weights={**inner.weights, f"{_JOINED}.weight": whole})
    out = linear(joined, _JOINED, x)
    adapted = [part for part in parts if part.adapter is not None]
    if not adapted or adapted[0].adapter is None:
        return out
    return _with_adapter(joined, kind, adapted, adapted[0].adapter, x, out)


def _with_adapter(
    block: Block, kind: Attention, adapted: Sequence[Weight], adapter: Adapter, x: Value, pretrained: Value
) -> Value:
    """pretrained + zero-padded B(A(dropout(x))) * scaling."""
    tape, rows = block.tape, x.numel // adapted[0].in_features
    rank = adapter.rank * len(adapted)
    down = block.parameter(f"{_JOINED}.lora_A", rank * adapted[0].in_features, adapter.width, trainable=True)
    low = ops.matmul(tape, ops.dropout(tape, x, adapter.dropout), down, rows * rank)
    sizes = [part.out_features for part in adapted]
    if kind.num_attention_heads == kind.num_key_value_heads:
        delta = _convolved(block, low, "lora_B", adapter, sum(sizes), rows)
    else:
        lows = row_ops.split_apart(tape, low, [rows * adapter.rank] * len(sizes))
        pairs = enumerate(zip(lows, sizes, strict=True))
        delta = ops.cat(
            tape, [_convolved(block, part, f"lora_B.{at}", adapter, size, rows) for at, (part, size) in pairs]
        )
        del lows
    padded = _padded(block, delta, pretrained.numel, sum(sizes))
    return ops.add(tape, pretrained, ops.scale(tape, padded))


def _convolved(block: Block, low: Value, name: str, adapter: Adapter, out_features: int, rows: int) -> Value:
    """`conv1d` with B as its filters; its gradient comes with channels last, which cuDNN has laid out anew."""
    tape = block.tape
    up = block.parameter(f"{_JOINED}.{name}", adapter.rank * out_features, adapter.width, trainable=True)
    out, saved, filters = tape.new(rows * out_features, low.width), detached(low), ops.shape(up)

    def backward(grad: Value) -> list[Value | None]:
        laid_out = tape.like(grad) if tape.cuda else None
        result: list[Value | None] = [tape.like(saved), tape.like(filters)]
        del laid_out
        return result

    return tape.record(out, (low, up), backward)


def _padded(block: Block, delta: Value, numel: int, adapted: int) -> Value:
    """`index_copy_` of the delta into zeros of the full width; the delta itself where that is the full width."""
    tape = block.tape
    if delta.numel == numel:
        return delta
    out, saved, index = tape.new(numel, delta.width), detached(delta), tape.new(adapted, _INDEX)

    def backward(grad: Value) -> list[Value | None]:
        assert index.numel
        return [tape.like(saved)]

    return tape.record(out, (delta,), backward)
