"""Recurrent blocks of a graph: gated delta nets, Mamba 1 and 2, short convolutions.

Source: llama.cpp v0.5.0 `src/models/delta-net-base.cpp`, `qwen35.cpp`, `qwen3next.cpp`, `mamba-base.cpp`,
`lfm2.cpp`, `src/llama-graph.cpp` (build_rs).
"""

from __future__ import annotations

from collections.abc import Callable

from planner.engines.llama_cpp.graph.context import Context
from planner.engines.llama_cpp.graph.tensor import F32, Tensor
from planner.model.kinds.delta import GatedDeltaNet
from planner.model.kinds.mamba import Mamba1, Mamba2
from planner.model.kinds.short_conv import ShortConv

Reader = Callable[[Tensor, Tensor], Tensor]


def _states(context: Context, layer: int, size: int, read: Reader | None = None) -> tuple[Tensor, Tensor]:
    """(a layer's states of all slots, those that the batch continues from)."""
    graph, slots = context.graph, context.batch.sequences * (1 + context.batch.rollback)
    home = context.device_of(layer) if context.batch.offload_cache else context.host
    memory = graph.cache(home, size, slots, item=F32)
    states = graph.reshape(memory, size, slots)
    graph.expand(graph.in_place("scale", graph.view(states, (size,))))
    main, rest = context.state_rows()
    current = graph.get_rows(states, main) if read is None else read(states, main)
    graph.expand(current)
    extra = graph.get_rows(states, rest)
    graph.expand(graph.copy_into(extra, graph.view(memory, (size, 0))))
    return memory, current


def _save(context: Context, memory: Tensor, tensor: Tensor) -> None:
    """Writes a state back."""
    graph = context.graph
    target = graph.view(memory, tensor.ne)
    graph.expand(graph.copy_into(tensor, target))


def delta_net(context: Context, layer: int, spec: GatedDeltaNet, x: Tensor) -> Tensor:
    """One gated delta net: a convolution over queries, keys and values, and a state per value head."""
    graph, batch = context.graph, context.batch
    sequences, each = batch.sequences, batch.tokens // batch.sequences
    key_heads, value_heads, key, value = (
        spec.num_key_heads,
        spec.num_value_heads,
        spec.key_head_dim,
        spec.value_head_dim,
    )
    width = 2 * spec.key_size + spec.value_size
    if spec.layout == "qkvz_ba" and context.style.joint_projection:
        mixed, z, beta, gate = _joint(context, layer, spec, x)
    else:
        mixed = graph.reshape(context.linear(layer, "attn_qkv", x, width), width, each, sequences)
        z = context.linear(layer, "attn_gate", x, spec.value_size)
        if context.style.joint_projection:
            beta, gate = _joint_rates(context, layer, spec, x)
        else:
            beta = graph.reshape(context.linear(layer, "ssm_beta", x, value_heads), 1, value_heads, each, sequences)
            beta = context.unary(beta)
            gate = graph.reshape(context.linear(layer, "ssm_alpha", x, value_heads), value_heads, each, sequences)
            gate = _decay(context, layer, spec, gate)
    kernel = spec.conv_kernel
    memory, tail = _states(context, layer, (kernel - 1) * width)
    tail = graph.reshape(tail, kernel - 1, width, sequences)
    joined = graph.concat(tail, graph.transpose(mixed), 0)
    for _ in range(1 + batch.rollback):
        _save(context, memory, graph.view(joined, (kernel - 1, width, sequences), joined.nb[1:3]))
    state_size = value * value * value_heads
    state_memory, state = _states(context, layer, state_size)
    state = graph.reshape(state, value, value, value_heads, sequences)
    kernel_weight = context.weight(layer, "ssm_conv1d", kernel, width)
    convolved = Tensor("ssm_conv", (width, each, sequences, 1), (joined, kernel_weight))
    convolved = context.unary(convolved)
    row = F32 * width
    q, k = (graph.view(convolved, (key, key_heads, each, sequences), (F32 * key, row, row * each)) for _ in range(2))
    v = graph.view(convolved, (value, value_heads, each, sequences), (F32 * value, row, row * each))
    q, k = (graph.same("scale", graph.same("rms_norm", tensor)) for tensor in (q, k))
    out = spec.value_size * batch.tokens
    written = 1 + batch.rollback
    result = graph.flat("gated_delta_net", out + state_size * sequences * written, q, k, v, gate, beta, state)
    output = graph.view(result, (value, value_heads, each, sequences))
    if batch.rollback:
        fresh = graph.view(result, (state_size, sequences, min(each, written)))
    else:
        fresh = graph.view(result, (value, value, value_heads, sequences))
    _save(context, state_memory, fresh)
    z = graph.reshape(z, value, value_heads, each, sequences)
    normed = context.norm(layer, "ssm_norm", output)
    output = graph.same("mul", normed, context.unary(z))
    output = graph.reshape(output, spec.value_size, each, sequences)
    output = context.linear(layer, "ssm_out", output, context.hidden_size)
    return graph.reshape(output, context.hidden_size, batch.tokens)


def _decay(context: Context, layer: int, spec: GatedDeltaNet, alpha: Tensor) -> Tensor:
    graph, heads = context.graph, spec.num_value_heads
    gate = context.unary(graph.same("add", alpha, context.weight(layer, "ssm_dt.bias", heads)))
    gate = graph.same("mul", gate, context.weight(layer, "ssm_a", heads))
    return graph.reshape(gate, 1, heads, alpha.ne[1], alpha.ne[2])


def _joint_rates(context: Context, layer: int, spec: GatedDeltaNet, x: Tensor) -> tuple[Tensor, Tensor]:
    """Qwen3-Next: write strengths and decays out of one small matrix."""
    graph, batch = context.graph, context.batch
    sequences, each, heads = batch.sequences, batch.tokens // batch.sequences, spec.num_value_heads
    both = context.linear(layer, "ssm_ba", x, 2 * heads)
    share = 2 * heads // spec.num_key_heads
    both = graph.reshape(both, share, spec.num_key_heads, each, sequences)
    half = (share // 2, spec.num_key_heads, each, sequences)
    beta = graph.cont(graph.view(both, half, both.nb[1:]), 1, heads, each, sequences)
    alpha = graph.cont(graph.view(both, half, both.nb[1:]), heads, each, sequences)
    return context.unary(beta), _decay(context, layer, spec, alpha)


def _joint(context: Context, layer: int, spec: GatedDeltaNet, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    graph, batch = context.graph, context.batch
    sequences, each = batch.sequences, batch.tokens // batch.sequences
    width = 2 * spec.key_size + spec.value_size
    mixed = graph.reshape(context.linear(layer, "attn_qkv", x, width), width, each, sequences)
    z = context.linear(layer, "attn_gate", x, spec.value_size)
    beta, gate = _joint_rates(context, layer, spec, x)
    return mixed, z, beta, gate


def mamba2(context: Context, layer: int, spec: Mamba2, x: Tensor) -> Tensor:
    """One Mamba 2 block."""
    graph, batch = context.graph, context.batch
    sequences, each = batch.sequences, batch.tokens // batch.sequences
    state, heads, groups, head = spec.state_size, spec.num_heads, spec.n_groups, spec.head_dim
    inner = heads * head
    width = inner + 2 * groups * state
    kernel = spec.conv_kernel
    memory, tail = _states(context, layer, (kernel - 1) * width)
    tail = graph.reshape(tail, kernel - 1, width, sequences)
    total = inner + width + heads
    joint = graph.reshape(context.linear(layer, "ssm_in", x, total), total, each, sequences)
    row, plane = joint.nb[1], joint.nb[2]
    z = graph.view(joint, (head, heads, each, sequences), (F32 * head, row, plane))
    mixed = graph.view(joint, (width, each, sequences), (row, plane))
    rates = graph.view(joint, (heads, each, sequences), (row, plane))
    joined = graph.concat(tail, graph.transpose(mixed), 0)
    for _ in range(min(each, 1 + batch.rollback)):
        _save(context, memory, graph.view(joined, (kernel - 1, width, sequences), joined.nb[1:3]))
    kernel_weight = context.weight(layer, "ssm_conv1d", kernel, width)
    mixed = Tensor("ssm_conv", (width, each, sequences, 1), (joined, kernel_weight))
    mixed = context.unary(graph.same("add", mixed, context.weight(layer, "ssm_conv1d.bias", width)))
    values = graph.view(mixed, (head, heads, each, sequences), (F32 * head, mixed.nb[1], mixed.nb[2]))
    b, c = (graph.view(mixed, (state, groups, each, sequences), (F32 * state, mixed.nb[1], mixed.nb[2])) for _ in "bc")
    rates = graph.same("add", graph.cont(rates), context.weight(layer, "ssm_dt.bias", heads))
    decay = context.weight(layer, "ssm_a", heads)
    written = min(each, 1 + batch.rollback)
    out = inner * batch.tokens

    def scan(states: Tensor, rows: Tensor) -> Tensor:
        own = graph.reshape(states, state, head, heads, states.ne[1])
        size = out + state * inner * sequences * (1 + batch.rollback)
        return graph.flat("ssm_scan", size, own, values, rates, decay, b, c, rows)

    state_memory, scanned = _states(context, layer, state * inner, scan)
    _save(context, state_memory, graph.view(scanned, (state * inner, sequences, written)))
    y = graph.view(scanned, (head, heads, each, sequences))
    y = graph.same("add", y, graph.same("mul", values, context.weight(layer, "ssm_d", heads)))
    y = graph.glu(graph.cont(z), y)
    if context.style.inner_norm:
        y = context.norm(layer, "ssm_norm", graph.reshape(y, inner // groups, groups, each, sequences))
    y = graph.reshape(y, inner, batch.tokens)
    return context.linear(layer, "ssm_out", y, context.hidden_size)


def mamba1(context: Context, layer: int, spec: Mamba1, x: Tensor) -> Tensor:
    """One Mamba 1 block."""
    graph, batch = context.graph, context.batch
    sequences, each = batch.sequences, batch.tokens // batch.sequences
    inner, state, kernel, rank = spec.intermediate_size, spec.state_size, spec.conv_kernel, spec.time_step_rank
    memory, tail = _states(context, layer, (kernel - 1) * inner)
    tail = graph.reshape(tail, kernel - 1, inner, sequences)
    x = graph.reshape(x, x.ne[0], each, sequences)
    both = context.linear(layer, "ssm_in", x, 2 * inner)
    mixed, z = (graph.view(both, (inner, each, sequences), both.nb[1:3]) for _ in range(2))
    joined = graph.concat(tail, graph.transpose(mixed), 0)
    _save(context, memory, graph.view(joined, (kernel - 1, inner, sequences), joined.nb[1:3]))
    mixed = Tensor(
        "ssm_conv", (inner, each, sequences, 1), (joined, context.weight(layer, "ssm_conv1d", kernel, inner))
    )
    mixed = context.unary(graph.same("add", mixed, context.weight(layer, "ssm_conv1d.bias", inner)))
    joint = context.linear(layer, "ssm_x", mixed, rank + 2 * state)
    rates = graph.view(joint, (rank, each, sequences), joint.nb[1:3])
    b, c = (graph.view(joint, (state, 1, each, sequences), (F32 * state, *joint.nb[1:3])) for _ in range(2))
    if context.style.inner_norm:
        rates, b, c = (context.norm(layer, f"ssm_{n}_norm", t) for n, t in (("dt", rates), ("b", b), ("c", c)))
    else:
        rates = graph.cont(rates)
    rates = context.linear(layer, "ssm_dt", rates, inner, bias=True)
    values = graph.reshape(mixed, 1, inner, each, sequences)
    decay = context.weight(layer, "ssm_a", state, inner)
    out = inner * batch.tokens

    def scan(states: Tensor, rows: Tensor) -> Tensor:
        own = graph.reshape(states, state, 1, inner, states.ne[1])
        return graph.flat("ssm_scan", out + state * inner * sequences, own, values, rates, decay, b, c, rows)

    state_memory, scanned = _states(context, layer, state * inner, scan)
    _save(context, state_memory, graph.view(scanned, (state * inner * sequences,)))
    y = graph.view(scanned, (inner, each, sequences))
    y = graph.same("add", y, graph.same("mul", mixed, context.weight(layer, "ssm_d", inner)))
    y = graph.glu(graph.cont(z), y)
    y = context.linear(layer, "ssm_out", y, context.hidden_size)
    return graph.reshape(y, context.hidden_size, batch.tokens)


def short_convolution(context: Context, layer: int, spec: ShortConv, x: Tensor) -> Tensor:
    """One gated short convolution (LFM2)."""
    graph, batch = context.graph, context.batch
    sequences, each, size, kernel = batch.sequences, batch.tokens // batch.sequences, spec.size, spec.kernel
    x = graph.reshape(x, x.ne[0], each, sequences)
    three = context.linear(layer, "shortconv.in_proj", x, 3 * size)
    b, c, signal = (graph.view(three, (size, each, sequences), three.nb[1:3]) for _ in range(3))
    mixed = graph.transpose(graph.same("mul", b, signal))
    memory, tail = _states(context, layer, (kernel - 1) * size)
    mixed = graph.concat(graph.reshape(tail, kernel - 1, size, sequences), mixed, 0)
    for _ in range(min(each, 1 + batch.rollback)):
        _save(context, memory, graph.view(mixed, (kernel - 1, size, sequences), mixed.nb[1:3]))
    convolved = Tensor(
        "ssm_conv", (size, each, sequences, 1), (mixed, context.weight(layer, "shortconv.conv", kernel, size))
    )
    y = graph.same("mul", c, convolved)
    y = context.linear(layer, "shortconv.out_proj", y, context.hidden_size)
    return graph.reshape(y, context.hidden_size, batch.tokens)
