"""Norms: what RMSNorm, Gemma's offset RMSNorm and LayerNorm keep of their input.

hf         x in fp32 (its square and its product need it), the inverse root, and the normed x for the scale's gradient
litgpt     the same, the normed x in fp32 too, and the scale in fp32
fused      x and the inverse root
layer      x, mean and inverse root (native_layer_norm)

Source: transformers 5.24 modeling_llama.py LlamaRMSNorm, modeling_gemma2.py Gemma2RMSNorm; torch derivatives.yaml
native_layer_norm; torch 2.13 aten native/layer_norm.cpp rms_norm_composite, which torchtune's norm falls back to as its
scale has another type than its input; liger_kernel 0.5 ops/rms_norm.py; litgpt 0.5.13 model.py RMSNorm.
"""

from __future__ import annotations

from planner.model.tensor import Norm
from planner.training.blocks.block import Block
from planner.training.tape import ops
from planner.training.tape.tape import Value, detached

FP32 = 4


def norm(block: Block, kind: Norm, x: Value) -> Value:
    """The norm of x over its last `kind.size` elements."""
    rows = x.numel // kind.size
    if kind.kind == "layer" and block.has_habit("layer_norm_in_python"):
        return _layer_in_python(block, kind, x, rows)
    if kind.kind == "layer":
        return _fused(block, kind, x, statistics=2)
    if block.kernels.norm in ("fused", "liger"):
        return _fused(block, kind, x, statistics=1)
    if block.kernels.norm == "litgpt":
        return _litgpt_rms(block, kind, x, rows)
    if kind.kind == "rms_offset":
        return _offset_rms(block, kind, x, rows)
    if block.has_habit("norm_promotes"):
        return _promoted_rms(block, kind, x, rows)
    return _rms(block, kind, x, rows)


def _promoted_rms(block: Block, kind: Norm, x: Value, rows: int) -> Value:
    """T5's: the square is taken in fp32, and x itself times the fp32 root promotes to fp32 (T5LayerNorm.forward)."""
    tape, before = block.tape, x.width
    variance = ops.mean(tape, ops.square(tape, ops.cast(tape, x, FP32)), rows)
    x = ops.cast(tape, ops.mul(tape, x, ops.keep_result(tape, ops.shift(tape, variance))), before)
    return ops.mul(tape, block.weight(f"{kind.name}.weight"), x)


def _rms(block: Block, kind: Norm, x: Value, rows: int) -> Value:
    tape, before = block.tape, x.width
    x = ops.cast(tape, x, FP32)
    variance = ops.mean(tape, ops.square(tape, x), rows)
    x = ops.mul(tape, x, ops.keep_result(tape, ops.shift(tape, variance)))
    if not kind.weight:
        return ops.cast(tape, x, before)
    if block.kernels.norm == "torchtune" or block.has_habit("scale_in_fp32"):
        return ops.cast(tape, ops.mul(tape, block.weight(f"{kind.name}.weight"), x), before)
    return ops.mul(tape, block.weight(f"{kind.name}.weight"), ops.cast(tape, x, before))


def _layer_in_python(block: Block, kind: Norm, x: Value, rows: int) -> Value:
    tape, before = block.tape, x.width
    x = ops.cast(tape, x, FP32)
    mean = ops.mean(tape, x, rows)
    variance = ops.mean(tape, ops.square(tape, ops.add(tape, x, mean)), rows)
    x = ops.mul(tape, ops.add(tape, x, mean), ops.keep_result(tape, ops.shift(tape, variance)))
    scale = ops.cast(tape, block.weight(f"{kind.name}.weight"), FP32)
    return ops.cast(tape, ops.mul(tape, scale, x), before)


def _offset_rms(block: Block, kind: Norm, x: Value, rows: int) -> Value:
    tape, before = block.tape, x.width
    scale = ops.shift(tape, ops.cast(tape, block.weight(f"{kind.name}.weight"), FP32))
    x = ops.cast(tape, x, FP32)
    inverse = ops.keep_result(tape, ops.shift(tape, ops.mean(tape, ops.square(tape, x), rows)))
    out = ops.mul(tape, x, inverse)
    out = ops.mul(tape, out, scale)
    return ops.cast(tape, out, before)


def _litgpt_rms(block: Block, kind: Norm, x: Value, rows: int) -> Value:
    """All of it in fp32, the scale included, whose copy is kept even where it is frozen."""
    tape, before = block.tape, x.width
    x = ops.cast(tape, x, FP32)
    variance = ops.mean(tape, ops.mul(tape, x, x), rows)
    x = ops.mul(tape, x, ops.keep_result(tape, ops.shift(tape, variance)))
    scale = block.weight(f"{kind.name}.weight")
    if kind.kind == "rms_offset":
        scale = ops.shift(tape, scale)
    return ops.cast(tape, ops.mul(tape, x, ops.cast(tape, scale, FP32)), before)


def _fused(block: Block, kind: Norm, x: Value, *, statistics: int) -> Value:
    """One kernel that keeps x and its statistics; under autocast LayerNorm computes in fp32."""
    tape = block.tape
    if tape.autocast and kind.kind == "layer":
        x = ops.cast(tape, x, FP32)
    scale = block.weight(f"{kind.name}.weight") if kind.weight else None
    out = tape.like(x)
    held = [tape.new(x.numel // kind.size, FP32) for _ in range(statistics)]
    saved = detached(x)
    inputs = [x] if scale is None else [x, scale]

    def backward(grad: Value) -> list[Value | None]:
        assert held
        result: list[Value | None] = [tape.like(saved)]
        if scale is not None:
            result.append(tape.like(ops.shape(scale)) if scale.needs_grad else None)
        return result

    return tape.record(out, inputs, backward)
