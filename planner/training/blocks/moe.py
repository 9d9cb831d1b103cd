"""Mixtures of experts: router, dispatch, experts and their sum, for tokens spread evenly over the experts.

Each token is copied for each of its K experts; gate, up and product are held for T x K rows of the expert's width.
Source: transformers 5.24 integrations/moe.py grouped_mm_experts_forward, modeling_mixtral.py MixtralTopKRouter; 4.48
modeling_mixtral.py MixtralSparseMoeBlock, a loop over experts whose backward holds one expert's gradients at a time.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.kinds.feed_forward import Moe
from planner.training.blocks.block import Block, Weight
from planner.training.blocks.feed_forward import activation, clamped_swiglu, mlp
from planner.training.blocks.linear import effective_weight, merged_experts, stacked_linear
from planner.training.blocks.linear import linear as linear_layer
from planner.training.tape import ops, row_ops
from planner.training.tape.tape import Value

INDEX = 8  # bytes of an index
FP32 = 4


def moe(block: Block, kind: Moe, x: Value) -> Value:
    """The block's output for a normed input."""
    tape, inner, names = block.tape, block.sub(kind.names.block), kind.names
    tokens, width = x.numel // block.hidden_size, x.width
    rows = tokens * kind.num_experts_per_tok
    shared = None
    if kind.shared is not None and inner.has_habit("shared_expert_first") and not block.kernels.loops_over_experts:
        shared = mlp(inner, kind.shared, x)
    logits = _logits(inner, names.router, x)
    scores = ops.softmax_fp32(tape, logits)
    top = ops.part(tape, scores, rows)
    top = ops.mul(tape, top, ops.keep_result(tape, ops.mean(tape, top, tokens)))
    if not inner.has_habit("router_in_fp32"):  # these weight the experts' rows in fp32
        top = ops.cast(tape, top, width)
    if block.kernels.loops_over_experts:
        out = _looped(block, inner, kind, x, top, rows)
    else:
        out = _grouped(block, inner, kind, x, top, rows)
    if kind.shared is not None:
        shared = mlp(inner, kind.shared, x) if shared is None else shared
        if kind.shared_gate:
            shared = ops.mul(tape, ops.keep_result(tape, linear_layer(inner, names.shared_gate, x)), shared)
        out = ops.add(tape, out, shared)
    return out


def _logits(inner: Block, router: str, x: Value) -> Value:
    """The router's scores of all experts; some models convert hidden states and matrix to fp32 for it."""
    tape = inner.tape
    if not inner.has_habit("router_in_fp32"):
        return linear_layer(inner, router, x)
    matrix = ops.cast(tape, effective_weight(inner, router), FP32)
    return ops.matmul(
        tape, ops.cast(tape, x, FP32), matrix, x.numel // inner.hidden_size * matrix.numel // inner.hidden_size
    )


def _grouped(block: Block, inner: Block, kind: Moe, x: Value, top: Value, rows: int) -> Value:
    """All experts in one grouped product: tokens sorted by expert, computed, weighted, put back, summed."""
    tape, width = block.tape, kind.expert_input_size or block.hidden_size
    order = tape.new(rows, INDEX)
    # the function that does it holds its locals to its end: gathered rows, and products before they are put in order
    chosen = row_ops.gather_rows(tape, x, rows * width, order)
    hidden = _experts(block, inner, kind, chosen)
    weighted = ops.mul(tape, hidden, top)
    weighted = row_ops.gather_rows(tape, weighted, weighted.numel, order)
    out = ops.cast(tape, ops.mean(tape, weighted, x.numel), x.width)
    del chosen, hidden, weighted
    return out


def _looped(block: Block, inner: Block, kind: Moe, x: Value, top: Value, rows: int) -> Value:
    """One expert after the other, each adding to the result in place (transformers before 5)."""
    tape, width = block.tape, kind.expert_input_size or block.hidden_size
    share = -(-rows // kind.num_experts)
    out = tape.new(x.numel, top.width)
    weights = _expert_weights(inner, kind)
    for _ in range(kind.num_experts):
        index = tape.new(share, 2 * INDEX)  # `torch.where`: the token, and which of its choices
        chosen = row_ops.gather_rows(tape, x, share * width, index)
        done = _one_expert(replace(inner, weights=weights, _parameters={}), kind, chosen)
        weighted = ops.mul(tape, done, row_ops.gather_rows(tape, top, share, index))
        del chosen, done
        out = row_ops.add_rows(tape, out, weighted, index)
        del weighted, index
    return ops.cast(tape, out, x.width)


def _one_expert(expert: Block, kind: Moe, x: Value) -> Value:
    if not kind.gated:
        return linear_layer(expert, "down", activation(expert, kind.activation, linear_layer(expert, "up", x)))
    gate = activation(expert, kind.activation, linear_layer(expert, "gate", x))
    return linear_layer(expert, "down", ops.mul(expert.tape, gate, linear_layer(expert, "up", x)))


def _expert_weights(inner: Block, kind: Moe) -> dict[str, Weight]:
    """The matrices of one expert, which are linear layers of their own."""
    weights: dict[str, Weight] = {}
    first = "gate_up_proj" if kind.gated else "up_proj"
    for parameter, layers in ((first, ("gate", "up") if kind.gated else ("up",)), ("down_proj", ("down",))):
        stacked = inner.spec_of_parameter(f"{kind.names.experts}.{parameter}")
        for at, layer in enumerate(layers):
            adapter = stacked.adapter
            weights[f"{layer}.weight"] = replace(
                stacked,
                out_features=stacked.out_features // kind.num_experts // len(layers),
                adapter=replace(adapter, stack=1) if adapter and at < adapter.parts else None,
            )
    return weights


def _experts(block: Block, inner: Block, kind: Moe, chosen: Value) -> Value:
    tape, names, size = block.tape, kind.names, kind.moe_intermediate_size
    width = kind.expert_input_size or block.hidden_size
    rows = chosen.numel // width
    # the wrapper around a parameter keeps its merged matrix until the experts are through
    up_name = f"{names.experts}.{'gate_up_proj' if kind.gated else 'up_proj'}"
    merged_up = merged_experts(inner, up_name)
    biases = _chosen_biases(inner, kind, up_name, rows, 2 * size if kind.gated else size)
    if kind.gated:
        both = stacked_linear(inner, up_name, chosen, rows, 2 * size, merged_up)
        if kind.activation == "swigluoai":
            hidden = clamped_swiglu(tape, both)
            del both
        else:
            gate, up = ops.split(tape, both, [both.numel // 2] * 2)
            del both
            hidden = ops.mul(tape, activation(block, kind.activation, gate), up)
            del gate, up
    else:
        up = stacked_linear(inner, up_name, chosen, rows, size, merged_up)
        hidden = activation(block, kind.activation, up)
        del up
    down_name = f"{names.experts}.down_proj"
    merged_down = merged_experts(inner, down_name)
    biases = _chosen_biases(inner, kind, down_name, rows, width)
    out = stacked_linear(inner, down_name, hidden, rows, width, merged_down)
    del merged_up, merged_down, biases
    return out


def _chosen_biases(inner: Block, kind: Moe, name: str, rows: int, out_features: int) -> Value | None:
    """The bias of each row's expert, a row of its own: added in place, and held until the next ones are there."""
    if not kind.expert_bias:
        return None
    index = inner.tape.new(rows, INDEX)
    return row_ops.gather_rows(inner.tape, inner.weight(f"{name}_bias"), rows * out_features, index)
