"""Attention with keys and values per head, as transformers' eager, SDPA and flash paths run it.

Source: transformers 5.24 modeling_llama.py (LlamaAttention, apply_rotary_pos_emb, eager_attention_forward),
integrations/sdpa_attention.py, modeling_qwen3.py (norms on queries and keys).
"""

from __future__ import annotations

from planner.model.kinds.attention import Attention
from planner.training.blocks import torchtune
from planner.training.blocks.block import Block
from planner.training.blocks.linear import linear
from planner.training.blocks.norms import norm
from planner.training.stacks.habits import has_habit
from planner.training.tape import cuda, ops
from planner.training.tape.tape import Tape, Value, detached

_INDEX = 8  # bytes of an index


def attention(block: Block, kind: Attention, x: Value, source: Value | None = None) -> Value:
    """The output of the block's attention for a normed input x; keys and values of `source` where one is given."""
    tape, inner = block.tape, block.sub(kind.names.block)
    names = kind.names
    if kind.fused:
        sizes = [block.tokens * size for size in (kind.query_size, kind.key_size, kind.value_size)]
        query, key, value = ops.split(tape, linear(inner, names.fused, x), sizes)
    else:
        query = linear(inner, names.query, x)
        if kind.owns_key_value:
            read = x if source is None else source
            key = linear(inner, names.key, read)
            value = key if kind.value_from_key else linear(inner, names.value, read)
        else:  # an earlier layer's, kept there
            key = block.constant(block.tokens * kind.key_size, query.width)
            value = block.constant(block.tokens * kind.value_size, query.width)
    gate = None
    if kind.gated_query:
        query, gate = ops.split(tape, query, [query.numel // 2] * 2)
    if kind.query_norm is not None:
        query = norm(inner, kind.query_norm, query)
    if kind.key_norm is not None:
        key = norm(inner, kind.key_norm, key)
    if kind.rotary_dim and block.kernels.rope == "torchtune":
        query, key = torchtune.rotary(block, kind, query), torchtune.rotary(block, kind, key)
    elif kind.rotary_dim:
        query, key = rotary(block, kind, query, key)
    if block.kernels.caches:  # what is cached is a copy, and is used (transformers 5.24 DynamicLayer.update)
        key, value = ops.copy(tape, key), ops.copy(tape, value)
        block.cached += [detached(key), detached(value)]
    groups = groups_of(kind)
    capped = has_habit(block.model_type, "softcapped_attention")
    if block.kernels.attention == "eager" or (capped and block.kernels.attention == "sdpa"):
        out = _eager(block, kind, query, key, value, groups)
    else:
        out = _fused(block, kind, query, key, value, groups)
    if gate is not None:
        out = ops.mul(tape, out, ops.keep_result(tape, gate))
    if block.has_habit("heads_laid_out") and block.kernels.attention != "eager":
        out = ops.copy(tape, out)  # queries, keys and values are made contiguous head by head, and so is the result
    return linear(inner, names.output, out)


def groups_of(kind: Attention) -> int:
    """Query heads for each key head."""
    return kind.num_attention_heads // kind.num_key_value_heads


def rotary(block: Block, kind: Attention, query: Value, key: Value) -> tuple[Value, Value]:
    """Queries and keys turned by their positions; a head may be turned in part."""
    tape = block.tape
    if block.kernels.rope == "fused":
        return query, key
    if not joins_heads(block, kind):
        return _turn_both(block, kind.rotary_dim, query, key)
    turned = [x.numel // kind.head_dim * kind.rotary_dim for x in (query, key)]
    query_turned, query_passed = ops.part(tape, query, turned[0]), ops.part(tape, query, query.numel - turned[0])
    key_turned, key_passed = ops.part(tape, key, turned[1]), ops.part(tape, key, key.numel - turned[1])
    query_turned, key_turned = _turn_both(block, kind.rotary_dim, query_turned, key_turned)
    return ops.cat(tape, (query_turned, query_passed)), ops.cat(tape, (key_turned, key_passed))


def joins_heads(block: Block, kind: Attention) -> bool:
    """Turned and unturned parts of a head are concatenated, which lays queries out head by head."""
    partial = kind.rotary_dim not in (0, kind.head_dim)
    return partial or (bool(kind.rotary_dim) and block.has_habit("rope_joined"))


def _turn_both(block: Block, rotary_dim: int, query: Value, key: Value) -> tuple[Value, Value]:
    table = block.constant(block.seq * rotary_dim, min(block.position_width, query.width))
    if not block.has_habit("rope_in_fp32"):
        return _turn(block, query, table), _turn(block, key, table)
    tape, before = block.tape, query.width
    query, key = ops.cast(tape, query, 4), ops.cast(tape, key, 4)
    query, key = _turn(block, query, table), _turn(block, key, table)
    return ops.cast(tape, query, before), ops.cast(tape, key, before)


def _turn(block: Block, x: Value, table: Value) -> Value:
    """(x * cos) + (rotate_half(x) * sin)."""
    tape = block.tape
    turned = ops.mul(tape, x, table)
    half = x.numel // 2
    first, second = ops.part(tape, x, half), ops.part(tape, x, half)
    rotated = ops.cat(tape, (ops.scale(tape, second), first))
    del first, second
    return ops.add(tape, turned, ops.mul(tape, rotated, table))


def _eager(block: Block, kind: Attention, query: Value, key: Value, value: Value, groups: int) -> Value:
    """softmax(q k^T) v with every matrix of sequence x sequence in memory."""
    tape, heads = block.tape, kind.num_attention_heads
    if block.batch > 1:  # a batched product needs heads it can fold into the batch: a view is copied
        query, key, value = (ops.own_storage(tape, x) for x in (query, key, value))
    key_states, value_states = ops.expand(tape, key, groups), ops.expand(tape, value, groups)
    size = block.batch * heads * block.seq * (key.numel // (kind.key_size * block.batch))
    scores = ops.matmul(tape, query, key_states, size)
    if not block.has_habit("unscaled_attention"):
        scores = ops.scale(tape, scores)
    if has_habit(block.model_type, "softcapped_attention"):
        scores = ops.scale(tape, ops.keep_result(tape, ops.scale(tape, scores)))
    if block.mask_width and not block.has_habit("unscaled_attention"):
        scores = ops.add(tape, scores, block.constant(block.batch * block.seq * block.seq, block.mask_width))
    width = query.width
    if block.has_habit("attention_sinks"):
        scores = _with_sinks(tape, scores, block.batch * heads * block.seq)
    elif block.has_habit("softmax_in_16_bit"):
        scores = ops.softmax(tape, scores)
    else:
        scores = ops.cast(tape, ops.softmax_fp32(tape, scores), width)
    scores = ops.dropout(tape, scores, block.kernels.dropout.attention)
    out = ops.matmul(tape, scores, value_states, block.tokens * kind.output_input_size)
    return ops.copy(tape, out)


def _with_sinks(tape: Tape, scores: Value, rows: int) -> Value:
    """A column of sinks beside the scores, less the row's largest, through a softmax in their own type.

    Source: transformers 5.24 modeling_gpt_oss.py eager_attention_forward.
    """
    sinks = Value(rows, scores.width, scores.storage)
    joined = ops.cat(tape, (scores, sinks))
    del scores, sinks
    largest = tape.new(rows, _INDEX)
    probabilities = ops.softmax(tape, ops.take_maximum(tape, joined, largest))
    del joined, largest
    return ops.part(tape, probabilities, probabilities.numel - rows)


def _fused(block: Block, kind: Attention, query: Value, key: Value, value: Value, groups: int) -> Value:
    tape, kernels = block.tape, block.kernels
    pairs = block.seq * (key.numel // (kind.key_size * block.batch))
    if groups > 1 and block.has_habit("shares_keys_without_gqa") and kernels.attention == "sdpa":
        return _math(block, kind, query, key, value)
    if kernels.dropout.attention and not tape.cuda:
        return _math(block, kind, query, ops.expand(tape, key, groups), ops.expand(tape, value, groups))
    masked = kernels.masked and kernels.attention == "sdpa"
    if groups > 1 and (masked or _repeats_keys(block)):
        key, value, groups = ops.expand(tape, key, groups), ops.expand(tape, value, groups), 1
    mask = tape.new(block.batch * pairs, query.width) if masked else None
    out = ops.attention_kernel(
        tape,
        query,
        key,
        value,
        tokens=block.tokens,
        heads=kind.num_attention_heads,
        groups=groups,
        mask=mask,
        out_numel=block.tokens * kind.output_input_size,
    )
    # The kernel's result is laid out as its queries are; head by head, it is copied for the output projection.
    return ops.copy(tape, out) if joins_heads(block, kind) and block.kernels.rope != "fused" else out


def _repeats_keys(block: Block) -> bool:
    """The program repeats keys and values to all heads for a kernel that would take them as they are."""
    kernels = block.kernels
    some_have = kernels.old_attention_classes and block.has_habit("old_attention_classes")
    own_class = kernels.attention_classes or some_have
    if kernels.attention == "sdpa":
        return kernels.expand_keys or kernels.expand_keys_in_sdpa or own_class
    return kernels.expand_keys or (own_class and block.has_habit("repeats_keys_for_flash"))


def _math(block: Block, kind: Attention, query: Value, key: Value, value: Value) -> Value:
    """SDPA's fallback where no kernel takes the heads as they are: eager in fp32.

    The CPU has no kernel that drops out either (aten sdp_utils_cpp.cpp), so what a CPU keeps is that of `eager`. The
    plan is for CUDA, whose flash and memory-efficient kernels draw the mask anew in backward from a seed and an offset,
    two numbers (aten native/transformers/cuda/attention.cu _scaled_dot_product_flash_attention_cuda: `philox_seed`,
    `philox_offset`), and keep nothing more than without dropout.
    """
    tape, before = block.tape, query.width
    query, key, value = (ops.scale(tape, ops.cast(tape, x, 4)) for x in (query, key, value))
    scores = ops.matmul(tape, query, key, block.batch * kind.num_attention_heads * block.seq * block.seq)
    if tape.cuda:
        beside = tape.new(1, cuda.sdpa_math_bytes(scores.numel))
        del beside
    scores = ops.dropout(tape, ops.softmax(tape, scores), block.kernels.dropout.attention)
    out = ops.matmul(tape, scores, value, block.tokens * kind.output_input_size)
    return ops.copy(tape, ops.cast(tape, out, before))
