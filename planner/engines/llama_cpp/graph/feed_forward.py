"""Feed-forward blocks of a graph: dense, and mixtures of experts.

Source: llama.cpp v0.5.0 `src/llama-graph.cpp` (build_ffn, build_moe_ffn).
"""

from __future__ import annotations

from planner.engines.llama_cpp.graph.context import Context
from planner.engines.llama_cpp.graph.tensor import Tensor
from planner.model.kinds.feed_forward import Mlp, Moe


def feed_forward(context: Context, layer: int, spec: Mlp | Moe, x: Tensor) -> Tensor:
    """The layer's feed-forward."""
    if isinstance(spec, Moe):
        return mixture(context, layer, spec, x)
    return dense(context, layer, spec, x)


def dense(context: Context, layer: int, spec: Mlp, x: Tensor, suffix: str = "") -> Tensor:
    """A plain, a gated, or a fused gated MLP."""
    graph, inner = context.graph, spec.intermediate_size
    if spec.gated and context.style.fused_gate:
        both = context.linear(layer, f"ffn_up{suffix}", x, 2 * inner, bias=spec.bias)
        mixed = graph.glu(both)
    elif spec.gated and context.batch.fused_up_gate and not spec.bias:
        up, gate = (context.weight(layer, f"{name}{suffix}", x.ne[0], inner) for name in ("ffn_up", "ffn_gate"))
        mixed = graph.mul_mat(up, x, second=gate)
    elif spec.gated:
        up = context.linear(layer, f"ffn_up{suffix}", x, inner, bias=spec.bias)
        gate = context.linear(layer, f"ffn_gate{suffix}", x, inner, bias=spec.bias)
        mixed = gated(context, gate, up)
    else:
        mixed = context.unary(context.linear(layer, f"ffn_up{suffix}", x, inner, bias=spec.bias))
        if spec.activation == "relu2":
            mixed = graph.same("sqr", mixed)
    output_bias = spec.bias if spec.output_bias is None else spec.output_bias
    return context.linear(layer, f"ffn_down{suffix}", mixed, context.hidden_size, bias=output_bias)


def gated(context: Context, gate: Tensor, up: Tensor) -> Tensor:
    """The activated gate times up: one operation (always in the fork), or two in place before 2025-07."""
    if context.batch.glu or context.batch.fork:
        return context.graph.glu(gate, up)
    return context.graph.same("mul", context.unary(gate), up)


def mixture(context: Context, layer: int, spec: Moe, x: Tensor, scores: Tensor | None = None) -> Tensor:
    """Routed experts and, beside them, what every token uses."""
    graph = context.graph
    routed = x
    if spec.expert_input_size is not None:
        routed = context.linear(layer, "ffn_latent_down", x, spec.expert_input_size)
        scores = context.linear(layer, "ffn_gate_inp", x, spec.num_experts)
    mixed = experts(context, layer, spec, routed, scores)
    if spec.expert_input_size is not None:
        mixed = context.linear(layer, "ffn_latent_up", mixed, context.hidden_size)
    if spec.shared is None:
        return mixed
    shared = dense(context, layer, spec.shared, x, "_shexp")
    if spec.shared_gate:
        gate = context.unary(context.linear(layer, "ffn_gate_inp_shexp", x, 1))
        shared = graph.same("mul", shared, gate)
    return graph.same("add", mixed, shared)


def experts(context: Context, layer: int, spec: Moe, x: Tensor, scores: Tensor | None) -> Tensor:
    """The routed experts: scores, choice, matrices, weighted sum."""
    graph, style = context.graph, context.style
    width, tokens = x.ne[0], x.ne[1]
    used, inner, count = spec.num_experts_per_tok, spec.moe_intermediate_size, spec.num_experts
    if scores is None:
        scores = context.linear(layer, "ffn_gate_inp", x, count, bias=spec.router_bias)
    weights, chosen = _choice(context, layer, spec, scores, tokens)
    graph.expand(weights)
    by_token = graph.reshape(x, width, 1, tokens)
    if style.weights_first:
        by_token = graph.same("mul", graph.repeat(by_token, width, used, tokens), weights)

    def matrices(name: str, source: Tensor, out: int) -> Tensor:
        result = graph.mul_mat_id(context.weight(layer, f"{name}_exps", source.ne[0], out, count), source, chosen)
        if not spec.expert_bias:
            return result
        return graph.same("add_id", result, context.weight(layer, f"{name}_exps.bias", out, count), chosen)

    if spec.gated and context.batch.fused_moe and not spec.expert_bias:
        mixed = graph.mul_mat_id(
            context.weight(layer, "ffn_up_exps", width, inner, count),
            by_token,
            chosen,
            second=context.weight(layer, "ffn_gate_exps", width, inner, count),
        )
    elif spec.gated and style.fused_experts:
        both = matrices("ffn_gate_up", by_token, 2 * inner)
        halves = [graph.view(both, (inner, used, tokens), both.nb[1:3]) for _ in range(2)]
        mixed = gated(context, halves[0], halves[1])
    else:
        up = matrices("ffn_up", by_token, inner)
        if spec.gated:
            mixed = gated(context, matrices("ffn_gate", by_token, inner), up)
        else:
            mixed = context.unary(up)
            if spec.activation == "relu2":
                mixed = graph.same("sqr", mixed)
    down = matrices("ffn_down", mixed, width)
    if not style.weights_first:
        down = graph.same("mul", down, weights)
    graph.expand(down)
    parts = [graph.view(down, (width, tokens), (down.nb[2],)) for _ in range(used)]
    for part in parts:
        graph.expand(part)
    total = parts[0]
    for part in parts[1:]:
        total = graph.same("add", total, part)
        graph.expand(total)
    return graph.cont(total) if used == 1 else total


def _choice(context: Context, layer: int, spec: Moe, scores: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """(weights [1, used, tokens], chosen experts [used, tokens])."""
    graph, style = context.graph, context.style
    used, count = spec.num_experts_per_tok, spec.num_experts
    chances = scores
    if style.gating == "softmax":
        chances = graph.same("soft_max", scores)
    elif style.gating == "sigmoid":
        chances = context.unary(scores)
    order = chances
    if spec.correction_bias:
        order = graph.same("add", chances, context.weight(layer, "exp_probs_b.bias", count))
    if style.weights_first:
        order = scores
    if style.groups > 1:
        order = _within_groups(context, order, style.groups, style.groups_used, count, tokens)
    chosen = graph.top_k(order, used)
    weights = graph.get_rows(graph.reshape(chances, 1, count, tokens), chosen)
    if style.gating == "chosen":
        weights = graph.same("soft_max", graph.reshape(weights, used, tokens))
        weights = graph.reshape(weights, 1, used, tokens)
    if style.normalised:
        flat = graph.reshape(weights, used, tokens)
        total = graph.same("clamp", graph.sum_rows(flat))
        weights = graph.reshape(graph.same("div", flat, total), 1, used, tokens)
    if style.scaled_weights:
        weights = graph.same("scale", weights)
    return weights, chosen


def _within_groups(context: Context, order: Tensor, groups: int, groups_used: int, count: int, tokens: int) -> Tensor:
    """Scores with all but the best groups' experts struck out."""
    graph, size = context.graph, count // groups
    grouped = graph.reshape(order, size, groups, tokens)
    best = graph.get_rows(graph.reshape(grouped, 1, size, groups, tokens), graph.top_k(grouped, 2))
    sums = graph.sum_rows(graph.reshape(best, 2, groups, tokens))
    chosen = graph.top_k(graph.reshape(sums, groups, tokens), groups_used)
    kept = graph.get_rows(grouped, chosen)
    struck = graph.same("fill", grouped)
    return graph.reshape(graph.set_rows(struck, kept, chosen), count, tokens)
