"""Linear layers as a framework runs them: plain, quantised, with an adapter beside or merged into the matrix.

Sources: PEFT 0.21 tuners/lora/layer.py, bnb.py, dora.py; the functions name the others.
"""

from __future__ import annotations

from planner.training.blocks import torchtune
from planner.training.blocks.block import Adapter, Block, Weight
from planner.training.tape import ops
from planner.training.tape.tape import Value, detached, parameter

_HALF = 2  # bytes of a float16


def linear(block: Block, name: str, x: Value) -> Value:
    """A linear layer `name`, with its adapter if it has one."""
    weight = block.spec_of(f"{name}.weight")
    if weight.adapter is not None and weight.adapter.merges:
        merged = effective_weight(block, name)
        return ops.matmul(block.tape, x, merged, x.numel // weight.in_features * weight.out_features)
    out = _base_linear(block, name, weight, x)
    if weight.adapter is None:
        return out
    if block.kernels.fused_adapters and weight.storage != "plain" and not weight.adapter.dora:
        return _with_fused_adapter(block, weight, weight.adapter, x, out)
    return _with_adapter(block, name, weight, weight.adapter, x, out)


def _base_linear(block: Block, name: str, weight: Weight, x: Value) -> Value:
    tape = block.tape
    rows = x.numel // weight.in_features
    if weight.storage == "plain":
        return ops.matmul(tape, x, block.weight(f"{name}.weight"), rows * weight.out_features)
    before = x.width
    x = ops.cast(tape, x, weight.width)
    unpacked = _unpacked(block, weight) if weight.storage == "dequantised" else None
    out = tape.new(rows * weight.out_features, weight.width)
    del unpacked
    if weight.storage == "fused" or block.kernels.unpacking == "torchao":
        tape.saves()  # the packed matrix (torchao nf4tensor.py LinearNF4); bitsandbytes keeps it as an attribute
    keeps = weight.storage == "int8" or (weight.storage == "dequantised" and block.kernels.keeps_quantised_input)
    kept = detached(x) if keeps and x.needs_grad else None
    if kept is not None and weight.storage == "dequantised":
        tape.keep_as_attribute(kept)
    if keeps and not tape.grad_enabled and not block.kernels.reentrant:
        block.cached.append(detached(x))  # an attribute of the node, which hooks on saved tensors do not see
    shape = ops.shape(x)

    def backward(grad: Value) -> list[Value | None]:
        assert kept is None or kept.numel
        unpacked = _unpacked(block, weight) if weight.storage != "fused" else None
        result = tape.like(shape)
        del unpacked
        return [result]

    out = tape.record(out, (x,), backward)
    # GPTQ's and AWQ's kernels hand out 16 bit; bitsandbytes goes back to the type of its input
    return out if weight.storage == "fused" else ops.cast(tape, out, before)


def _unpacked(block: Block, weight: Weight) -> Value:
    """The whole matrix in 16 bit, by one kernel (bitsandbytes, inductor) or, torchao's uncompiled, step by step."""
    tape = block.tape
    if weight.storage == "dequantised" and block.kernels.unpacking == "torchao":
        return torchtune.unpacked(tape, weight)
    half = tape.new(weight.numel, _HALF) if block.kernels.unpacking == "half" and not tape.half else None
    unpacked = tape.new(weight.numel, weight.width)
    del half  # dequantised in the float16 of its quantisation state, then converted
    return unpacked


def _with_adapter(block: Block, name: str, weight: Weight, adapter: Adapter, x: Value, result: Value) -> Value:
    """PEFT's Linear.forward: result + B(A(dropout(x))) * scaling, A and B in their own type."""
    tape, rows, before = block.tape, x.numel // weight.in_features, result.width
    if weight.storage == "dequantised" and block.kernels.clones_result:
        result = ops.copy(tape, result)  # peft/tuners/lora/bnb.py clones the frozen result
    if adapter.casts_input:
        x = ops.cast(tape, x, adapter.width)
    down = block.parameter(f"{name}.lora_A", adapter.rank * weight.in_features, adapter.width, trainable=True)
    up = block.parameter(f"{name}.lora_B", adapter.rank * weight.out_features, adapter.width, trainable=True)
    dropped = ops.dropout(tape, x, adapter.dropout)
    low = ops.matmul(tape, dropped, down, rows * adapter.rank)
    delta = ops.matmul(tape, low, up, rows * weight.out_features)
    del low, dropped
    if adapter.dora:
        return ops.cast(tape, _scaled_by_magnitude(block, name, weight, adapter, result, delta), before)
    delta = ops.scale(tape, delta)
    result = ops.add(tape, result, delta)
    del delta
    return ops.cast(tape, result, before)


def _with_fused_adapter(block: Block, weight: Weight, adapter: Adapter, x: Value, result: Value) -> Value:
    """One autograd function for base and adapter: keeps x, and what is left of it after dropout, without a mask.

    The product of A and B is added in place; the adapter's 16-bit copies are gone when the function returns, which
    autocast would keep. The three of a feed-forward are planned one by one, and the real function keeps one less.
    Source: fms_acceleration_foak fused_ops/unsloth_lora/gptq/fast_lora.py LoRA_QKV, LoRA_W (also bnb/fast_lora.py).
    """
    tape, rows, before = block.tape, x.numel // weight.in_features, result.width
    kept = [detached(x)]
    if adapter.dropout:
        kept.append(tape.like(x))
    copies = [tape.new(adapter.rank * side, before) for side in (weight.in_features, weight.out_features)]
    low = tape.new(rows * adapter.rank, before)
    delta = tape.new(rows * weight.out_features, before)
    del copies, low, delta
    sizes = [(adapter.rank * side, adapter.width) for side in (weight.in_features, weight.out_features)]
    down, up = (parameter(numel, width, trainable=True) for numel, width in sizes)
    tape.saves()
    out = Value(result.numel, result.width, result.storage)
    through = ops.shape(x)

    def backward(grad: Value) -> list[Value | None]:
        assert kept
        return [ops.grad_alias(grad), tape.like(through), *(tape.new(numel, width) for numel, width in sizes)]

    return tape.record(out, (result, x, down, up), backward)


def _scaled_by_magnitude(
    block: Block, name: str, weight: Weight, adapter: Adapter, result: Value, delta: Value
) -> Value:
    """DoRA: (m / |W + BA| - 1) * result + m / |W + BA| * BA x; the merged weight is made for its norm and dropped.

    Source: peft tuners/lora/dora.py DoraLinearLayer.forward.
    """
    tape = block.tape
    product = tape.new(weight.numel, adapter.width)
    merged = [tape.new(weight.numel, adapter.width), tape.new(weight.numel, max(adapter.width, weight.width))]
    merged.clear()
    del product
    magnitude = block.parameter(f"{name}.lora_magnitude", weight.out_features, adapter.width, trainable=True)
    scale = ops.scale(tape, magnitude)
    scaled = ops.scale(tape, ops.mul(tape, scale, delta))
    return ops.add(tape, result, ops.add(tape, ops.mul(tape, ops.shift(tape, scale), result), scaled))


def effective_weight(block: Block, name: str) -> Value:
    """The matrix of `name`, or W + (B A scaling) in W's type where PEFT wraps it as a parameter (a router).

    Source: peft 0.21.2 tuners/lora/layer.py ParamWrapper.get_delta_weight, _LoraParameterProxy.
    """
    tape, weight = block.tape, block.spec_of(f"{name}.weight")
    adapter = weight.adapter
    if adapter is None or not adapter.merges:
        return block.weight(f"{name}.weight")
    down, up = _adapter_matrices(block, name, weight, adapter)
    delta = ops.cast(tape, ops.scale(tape, ops.matmul(tape, up, down, weight.numel)), weight.width)
    return ops.add(tape, block.constant(weight.numel, weight.width), delta)


def merged_experts(block: Block, name: str) -> Value | None:
    """W + B A scaling of all experts in one new tensor; None where the experts have no adapter.

    A and B are converted to W's type, and these copies are kept for backward; so is the sum, by the product that it
    goes into. Registering the parametrization computes it once before, for a check of its shape.
    Source: peft 0.21.2 tuners/lora/layer.py ParamWrapper._activate_lora, get_delta_factors, _LoraFactorsProxy
    (`torch.baddbmm(W, lhs, rhs)`); torch 2.13 nn/utils/parametrize.py ParametrizationList.__init__.
    """
    weight = block.spec_of_parameter(name)
    adapter = weight.adapter
    if adapter is None or not adapter.merges:
        return None
    tape = block.tape
    down, up = _adapter_matrices(block, name, weight, adapter)
    # B is [out, r x experts] and is used as [experts, out, r]: its gradient is laid out anew
    up = ops.cast(tape, ops.relaid(tape, up), weight.width)
    down = ops.cast(tape, down, weight.width)
    checked = tape.new(weight.numel, weight.width)
    del checked
    return ops.product(tape, up, down, weight.numel)  # autocast is off inside


def _adapter_matrices(block: Block, name: str, weight: Weight, adapter: Adapter) -> tuple[Value, Value]:
    down = adapter.rank * adapter.stack * weight.in_features
    up = adapter.rank * weight.out_features
    return (
        block.parameter(f"{name}.lora_A", down, adapter.width, trainable=True),
        block.parameter(f"{name}.lora_B", up, adapter.width, trainable=True),
    )


def stacked_linear(
    block: Block, name: str, x: Value, rows: int, out_features: int, merged: Value | None = None
) -> Value:
    """A grouped product: every row goes through the matrix of its own expert, or through `merged` in its place.

    Autocast does not know the grouped product, which converts the rows to the weights' type (transformers 5.24
    integrations/moe.py _grouped_mm).
    """
    if merged is not None:
        return ops.product(block.tape, ops.cast(block.tape, x, merged.width), merged, rows * out_features)
    weight = block.spec_of_parameter(name)
    tape = block.tape
    if weight.storage == "plain":
        key = name if name in block.weights else f"{name}.weight"
        return ops.product(tape, ops.cast(tape, x, weight.width), block.weight(key), rows * out_features)
    before = x.width
    x = ops.cast(tape, x, weight.width)
    out = tape.new(rows * out_features, weight.width)
    shape = ops.shape(x)
    return ops.cast(tape, tape.record(out, (x,), lambda grad: (tape.like(shape),)), before)
