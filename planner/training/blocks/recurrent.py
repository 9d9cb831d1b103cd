"""Recurrent mixers with their fused kernels: what mamba_ssm, causal_conv1d and flash-linear-attention keep.

Sources: mamba_ssm ops/selective_scan_interface.py (MambaInnerFn, which computes the convolution and the step again in
backward), ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn); fla ops/gated_delta_rule/chunk.py (keeps q, k,
v, the decay, beta and one 64 x 64 matrix a chunk and head); transformers 5.24 modeling_lfm2.py.
"""

from __future__ import annotations

from planner.model.kinds.delta import GatedDeltaNet
from planner.model.kinds.mamba import Mamba1, Mamba2
from planner.model.kinds.short_conv import ShortConv
from planner.training.blocks.block import Block
from planner.training.blocks.linear import linear
from planner.training.tape import ops
from planner.training.tape.tape import Value

FP32 = 4
_CHUNK = 64  # tokens of a chunk in fla's delta rule


def mamba1(block: Block, kind: Mamba1, x: Value) -> Value:
    """in_proj, one kernel for convolution and scan, out_proj."""
    tape, inner = block.tape, block.sub(kind.block)
    both = linear(inner, "in_proj", x)
    states = tape.new(block.batch * kind.intermediate_size * kind.state_size * -(-block.seq // 2048), FP32)
    small = tape.new(block.tokens * (kind.time_step_rank + 2 * kind.state_size), x.width)
    out = ops.kernel(tape, (both,), block.tokens * kind.intermediate_size, x.width, (states, small))
    return linear(inner, "out_proj", out)


def mamba2(block: Block, kind: Mamba2, x: Value) -> Value:
    """in_proj, one kernel for convolution, scan and gated norm, out_proj."""
    tape, inner = block.tape, block.sub(kind.block)
    both = linear(inner, "in_proj", x)
    size = kind.intermediate_size
    scanned = tape.new(block.tokens * size, x.width)
    statistics = tape.new(block.tokens, FP32)
    out = ops.kernel(tape, (both,), block.tokens * size, x.width, (scanned, statistics))
    return linear(inner, "out_proj", out)


def gated_delta_net(block: Block, kind: GatedDeltaNet, x: Value) -> Value:
    """Projections, convolution, the chunked delta rule, a gated norm, out_proj."""
    tape, inner, tokens = block.tape, block.sub(kind.block), block.tokens
    mixed = 2 * kind.key_size + kind.value_size
    if kind.layout == "qkvz_ba":
        joined = linear(inner, "in_proj_qkvz", x)
        convolved, gate = ops.split(tape, joined, [tokens * mixed, tokens * kind.value_size])
        convolved = ops.copy(tape, convolved)
        decay, beta = ops.split(tape, linear(inner, "in_proj_ba", x), [tokens * kind.num_value_heads] * 2)
    else:
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        if kind.layout == "separate":
            convolved = ops.cat(tape, tuple(linear(inner, name, x) for name in ("q_proj", "k_proj", "v_proj")))
            gate, beta, decay = (linear(inner, name, x) for name in ("g_proj", "b_proj", "a_proj"))
        else:
            convolved, gate, beta, decay = (linear(inner, name, x) for name in names)
    convolved = ops.kernel(tape, (convolved,), tokens * mixed, x.width)
    query, key, value = ops.split(tape, convolved, [tokens * kind.key_size] * 2 + [tokens * kind.value_size])
    groups = kind.num_value_heads // kind.num_key_heads
    query, key = ops.expand(tape, query, groups), ops.expand(tape, key, groups)
    beta = ops.keep_result(tape, beta)
    decay = ops.keep_input(tape, ops.cast(tape, decay, FP32))
    kept = (
        tape.new(tokens * kind.num_value_heads * _CHUNK, x.width),
        tape.new(2 * tokens * kind.num_value_heads, FP32),
    )
    out = ops.kernel(tape, (query, key, value, decay, beta), tokens * kind.value_size, x.width, kept)
    statistics = tape.new(tokens * kind.num_value_heads, FP32)
    out = ops.kernel(tape, (out, gate), tokens * kind.value_size, x.width, (statistics,))
    return linear(inner, kind.output, out)


def short_conv(block: Block, kind: ShortConv, x: Value) -> Value:
    """B, C and x from one product; C * conv(B * x)."""
    tape, inner = block.tape, block.sub(kind.block)
    three = linear(inner, "in_proj", x)
    gate_in, gate_out, value = ops.split(tape, three, [three.numel // 3] * 3)
    convolved = ops.kernel(tape, (ops.mul(tape, gate_in, value),), block.tokens * kind.size, x.width)
    return linear(inner, "out_proj", ops.mul(tape, gate_out, convolved))
