"""Multi-head latent attention: the compressed vectors are expanded to keys and values of all heads for training.

Source: transformers 5.24 modeling_deepseek_v3.py DeepseekV3Attention.
"""

from __future__ import annotations

from planner.model.kinds.latent import LatentAttention
from planner.model.tensor import Norm
from planner.training.blocks.block import Block
from planner.training.blocks.linear import linear
from planner.training.blocks.norms import norm
from planner.training.tape import ops
from planner.training.tape.tape import Value


def latent_attention(block: Block, kind: LatentAttention, x: Value) -> Value:
    """The output of the block's attention for a normed input x."""
    tape, inner, heads, tokens = block.tape, block.sub(kind.block), kind.num_attention_heads, block.tokens
    if kind.q_lora_rank is None:
        query = linear(inner, "q_proj", x)
    else:
        compressed = norm(inner, Norm("q_a_layernorm", kind.q_lora_rank), linear(inner, "q_a_proj", x))
        query = linear(inner, "q_b_proj", compressed)
        del compressed
    nope, rope = tokens * heads * kind.qk_nope_head_dim, kind.qk_rope_head_dim
    passed, turned = ops.split(tape, query, [nope, query.numel - nope])
    latent = linear(inner, "kv_a_proj_with_mqa", x)
    latent, shared = ops.split(tape, latent, [tokens * kind.kv_lora_rank, tokens * rope])
    latent = norm(inner, Norm("kv_a_layernorm", kind.kv_lora_rank), latent)
    table = block.constant(block.seq * rope, min(block.position_width, query.width))
    if kind.rotary:
        turned, shared = (_turn(block, part, table) for part in (turned, shared))
    query = ops.cat(tape, (passed, turned))
    expanded = linear(inner, "kv_b_proj", latent)
    key, value = ops.split(tape, expanded, [nope, expanded.numel - nope])
    key = ops.cat(tape, (key, ops.expand(tape, shared, heads)))
    size = tokens * heads * kind.v_head_dim
    if block.kernels.attention == "eager":
        if block.batch > 1:  # values are a view of what was expanded: a batched product copies them
            value = ops.own_storage(tape, value)
            del expanded
        scores = ops.scale(tape, ops.matmul(tape, query, key, block.batch * heads * block.seq * block.seq))
        scores = ops.cast(tape, ops.softmax_fp32(tape, scores), query.width)
        scores = ops.dropout(tape, scores, block.kernels.dropout.attention)
        out = ops.copy(tape, ops.matmul(tape, scores, value, size))
    else:
        out = ops.attention_kernel(tape, query, key, value, tokens=tokens, heads=heads, groups=1)
    if kind.output_gate:
        out = ops.mul(tape, out, ops.keep_result(tape, linear(inner, "g_proj", x)))
    return linear(inner, "o_proj", out)


def _turn(block: Block, x: Value, table: Value) -> Value:
    tape = block.tape
    x = ops.copy(tape, x)  # interleaved pairs are put in halves first
    turned = ops.mul(tape, x, table)
    half = x.numel // 2
    rotated = ops.cat(tape, (ops.scale(tape, ops.part(tape, x, half)), ops.part(tape, x, half)))
    return ops.add(tape, turned, ops.mul(tape, rotated, table))
