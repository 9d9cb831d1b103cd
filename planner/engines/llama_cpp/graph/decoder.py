"""A decoder's whole graph: embedding, layers, logits.

Source: llama.cpp v0.5.0 `src/models/*.cpp` (the graphs), `src/llama-graph.cpp` (build_inp_embd).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.engines.llama_cpp.graph.attention import attention
from planner.engines.llama_cpp.graph.context import Context
from planner.engines.llama_cpp.graph.feed_forward import dense, experts, feed_forward
from planner.engines.llama_cpp.graph.latent import latent_attention
from planner.engines.llama_cpp.graph.recurrent import delta_net, mamba1, mamba2, short_convolution
from planner.engines.llama_cpp.graph.tensor import I32, Tensor
from planner.errors import UnsupportedArchitecture
from planner.model.kinds.attention import Attention
from planner.model.kinds.delta import GatedDeltaNet
from planner.model.kinds.feed_forward import Moe
from planner.model.kinds.latent import LatentAttention
from planner.model.kinds.mamba import Mamba1, Mamba2
from planner.model.kinds.short_conv import ShortConv
from planner.model.spec import Layer, Mixer, ModelSpec
from planner.model.tensor import Norm


def build(context: Context, spec: ModelSpec, layers: Sequence[int]) -> None:
    """Builds the graph of the layers listed (all of them, or those that stand for the rest)."""
    graph, style = context.graph, context.style
    x = _embedding(context, spec)
    width = per_layer_width(spec)
    per_layer = _per_layer_inputs(context, spec, x, width) if width else None
    last = len(spec.layers) - 1
    for index in layers:
        layer = spec.layers[index]
        rows = index == last and style.rows == "last"
        x = _BLOCKS[style.block](context, index, layer, x, rows)
        if per_layer is not None:
            x = _add_per_layer(context, index, x, per_layer)
            # the layer's own scale, which changes nothing in the models without such embeddings
            x = graph.same("mul", x, context.weight(index, "layer_output_scale", 1))
        if index < style.deepstack:
            whole = context.inputs["deepstack"]
            x = graph.same("add", x, graph.view(whole, (spec.hidden_size, context.batch.tokens), (whole.nb[1],)))
    if style.rows == "end":
        x.output = True
        x = graph.get_rows(x, context.output_rows())
    x = context.norm(-1, "output_norm", x, _final_norm(spec))
    x.output = True
    if style.rows == "norm":
        x = graph.get_rows(x, context.output_rows())
        x.output = True
    logits = graph.mul_mat(context.weight(-1, "output", spec.hidden_size, spec.vocab_size), x)
    graph.expand(logits)


def _embedding(context: Context, spec: ModelSpec) -> Tensor:
    graph, tokens = context.graph, context.batch.tokens
    ids = context.input("tokens", tokens, item=I32)
    width, stacked = spec.hidden_size, context.style.deepstack
    x = graph.get_rows(context.weight(-1, "token_embd", width, spec.vocab_size), ids)
    if stacked:
        x = graph.pad(x, stacked * width)
    graph.expand(x)
    if context.batch.embedding_inputs > 1:
        graph.expand(context.input("embeddings", width * (1 + stacked), tokens))
    if stacked:
        context.inputs["deepstack"] = x
        x = graph.view(x, (width, tokens), (x.nb[1],))
    if context.style.learned_positions:
        table = context.weight(-1, "position_embd", width, spec.max_position_embeddings)
        x = graph.same("add", x, graph.get_rows(table, context.positions()))
    if context.style.embedding_norm:
        x = context.norm(0, "token_embd_norm", x, _final_norm(spec), placed=False)
    if context.style.scaled_embedding:
        x = graph.same("scale", x)
        if not per_layer_width(spec):
            graph.expand(x)
    return x


def _final_norm(spec: ModelSpec) -> Norm | None:
    """The last norm is of the layers' kind."""
    return spec.layers[0].norms[0] if spec.layers[0].norms else None


def _mix(context: Context, index: int, mixer: Mixer, x: Tensor) -> Tensor:
    if isinstance(mixer, Attention):
        return attention(context, index, mixer, x)
    if isinstance(mixer, LatentAttention):
        return latent_attention(context, index, mixer, x)
    if isinstance(mixer, GatedDeltaNet):
        context.graph.expand(x)
        return delta_net(context, index, mixer, x)
    if isinstance(mixer, Mamba2):
        return mamba2(context, index, mixer, x)
    if isinstance(mixer, Mamba1):
        return mamba1(context, index, mixer, x)
    if isinstance(mixer, ShortConv):
        return short_convolution(context, index, mixer, x)
    raise UnsupportedArchitecture(f"no llama.cpp graph is known for {type(mixer).__name__} layers", field="model")


def _pre(context: Context, index: int, layer: Layer, x: Tensor, rows: bool) -> Tensor:
    """x + mixer(norm(x)), then x + feed-forward(norm(x))."""
    graph = context.graph
    if not layer.mixers and layer.feed_forward is None:
        return x  # a searched network leaves whole layers out
    normed = context.norm(index, "attn_norm", x, _norm(layer, 0))
    mixed = _mix(context, index, layer.mixers[0], normed) if layer.mixers else None
    if mixed is None and layer.feed_forward is not None:
        mixed = feed_forward(context, index, layer.feed_forward, normed)
        return graph.same("add", mixed, x)
    assert mixed is not None
    if rows:
        mixed, x = (graph.get_rows(tensor, context.output_rows()) for tensor in (mixed, x))
    first = _sum(context, mixed, x, swapped=context.style.residual_first)
    if layer.feed_forward is None:
        return first
    normed = context.norm(index, "ffn_norm", first, _norm(layer, 1))
    changed = feed_forward(context, index, layer.feed_forward, normed)
    return _sum(context, changed, first, swapped=context.style.residual_first or context.style.last_residual_first)


def _sum(context: Context, changed: Tensor, residual: Tensor, *, swapped: bool) -> Tensor:
    """The sum, in the place of its first term if nobody else needs that."""
    terms = (residual, changed) if swapped else (changed, residual)
    return context.graph.same("add", *terms)


def _post(context: Context, index: int, layer: Layer, x: Tensor, rows: bool) -> Tensor:
    """x + norm(mixer(x)), then x + norm(feed-forward(x))."""
    graph = context.graph
    mixed = _mix(context, index, layer.mixers[0], x)
    if rows:
        mixed, x = (graph.get_rows(tensor, context.output_rows()) for tensor in (mixed, x))
    first = graph.same("add", context.norm(index, "attn_post_norm", mixed), x)
    assert layer.feed_forward is not None
    changed = feed_forward(context, index, layer.feed_forward, first)
    return graph.same("add", context.norm(index, "ffn_post_norm", changed, placed=False), first)


def _sandwich(context: Context, index: int, layer: Layer, x: Tensor, rows: bool) -> Tensor:
    """Norms before and behind both."""
    graph = context.graph
    normed = context.norm(index, "attn_norm", x)
    mixed = _mix(context, index, layer.mixers[0], normed)
    if rows:
        mixed, x = (graph.get_rows(tensor, context.output_rows()) for tensor in (mixed, x))
    first = graph.same("add", context.norm(index, "attn_post_norm", mixed), x)
    assert layer.feed_forward is not None
    if isinstance(layer.feed_forward, Moe) and layer.feed_forward.shared is not None:
        changed = _two_feed_forwards(context, index, layer.feed_forward, first)
    else:
        changed = feed_forward(context, index, layer.feed_forward, context.norm(index, "ffn_norm", first))
    changed = context.norm(index, "ffn_post_norm", changed, placed=context.style.post_norm_in_layer)
    return graph.same("add", changed, first)


def _two_feed_forwards(context: Context, index: int, spec: Moe, x: Tensor) -> Tensor:
    """A dense and a routed feed-forward with norms of their own, added (Gemma 4)."""
    graph = context.graph
    assert spec.shared is not None
    plain = dense(context, index, spec.shared, context.norm(index, "ffn_norm", x))
    plain = context.norm(index, "ffn_post_norm_1", plain)
    routed = context.norm(index, "ffn_pre_norm_2", x)
    scores = graph.same("mul", graph.same("scale", graph.same("rms_norm", x)), context.weight(index, "gate", x.ne[0]))
    scores = context.linear(index, "ffn_gate_inp", scores, spec.num_experts)
    routed = experts(context, index, spec, routed, scores)
    return graph.same("add", plain, context.norm(index, "ffn_post_norm_2", routed))


def _parallel(context: Context, index: int, layer: Layer, x: Tensor, rows: bool) -> Tensor:
    """x + mixer(norm(x)) + feed-forward(norm(x))."""
    graph = context.graph
    normed = context.norm(index, "attn_norm", x, _norm(layer, 0))
    mixed = _mix(context, index, layer.mixers[0], normed)
    if rows:
        mixed, x, normed = (graph.get_rows(tensor, context.output_rows()) for tensor in (mixed, x, normed))
    assert layer.feed_forward is not None
    changed = feed_forward(context, index, layer.feed_forward, normed)
    if context.style.mixer_first:
        return graph.same("add", graph.same("add", mixed, changed), x)
    return graph.same("add", graph.same("add", changed, x), mixed)


def _parallel_norms(context: Context, index: int, layer: Layer, x: Tensor, rows: bool) -> Tensor:
    """x + mixer(norm(x)) + feed-forward(another norm(x)) (GPT-NeoX)."""
    graph = context.graph
    mixed = _mix(context, index, layer.mixers[0], context.norm(index, "attn_norm", x, _norm(layer, 0)))
    if rows:
        mixed, x = (graph.get_rows(tensor, context.output_rows()) for tensor in (mixed, x))
    assert layer.feed_forward is not None
    normed = context.norm(index, "ffn_norm", x, _norm(layer, 1))
    changed = feed_forward(context, index, layer.feed_forward, normed)
    return graph.same("add", graph.same("add", changed, x), mixed)


def _attention_beside_state(context: Context, index: int, layer: Layer, x: Tensor, rows: bool) -> Tensor:
    """x + attention(norm(x)) + recurrent(norm(x)), then the feed-forward (Falcon-H1)."""
    graph = context.graph
    both = []
    for mixer in sorted(layer.mixers, key=lambda one: not isinstance(one, Attention)):
        both.append(_mix(context, index, mixer, context.norm(index, "attn_norm", x, _norm(layer, 0))))
    mixed = graph.same("add", both[0], both[1])
    first = graph.same("add", mixed, x)
    if rows:
        first = graph.get_rows(first, context.output_rows())
    assert layer.feed_forward is not None
    normed = context.norm(index, "ffn_norm", first, _norm(layer, 1))
    return graph.same("add", feed_forward(context, index, layer.feed_forward, normed), first)


_BLOCKS = {
    "parallel_norms": _parallel_norms,
    "beside": _attention_beside_state,
    "pre": _pre,
    "post": _post,
    "sandwich": _sandwich,
    "parallel": _parallel,
}


def _norm(layer: Layer, place: int) -> Norm | None:
    return layer.norms[place] if place < len(layer.norms) else None


def per_layer_width(spec: ModelSpec) -> int:
    """Width of the embedding that every layer gets of its own; 0 where there is none (Gemma 4 E2B, E4B)."""
    gates = (tensor for tensor in spec.layers[0].extra if tensor.name.startswith("per_layer_input_gate"))
    return next((gate.shape[0] for gate in gates), 0)


def _per_layer_inputs(context: Context, spec: ModelSpec, x: Tensor, width: int) -> Tensor:
    """Gemma's embeddings for every layer: [width, tokens, layers]."""
    graph, tokens, count = context.graph, context.batch.tokens, len(spec.layers)
    ids = context.input("per layer tokens", tokens, item=I32)
    own = graph.get_rows(context.weight(-1, "per_layer_token_embd", width * count, spec.vocab_size), ids)
    own = graph.same("scale", graph.reshape(own, width, count, tokens))
    graph.expand(own)
    shared = graph.same("scale", graph.mul_mat(context.weight(0, "per_layer_model_proj", x.ne[0], width * count), x))
    shared = context.norm(0, "per_layer_proj_norm", graph.reshape(shared, width, count, tokens))
    total = graph.same("scale", graph.same("add", shared, own))
    return graph.cont(graph.permute(total, 0, 2, 1, 3))


def _add_per_layer(context: Context, index: int, x: Tensor, per_layer: Tensor) -> Tensor:
    graph = context.graph
    width, tokens = per_layer.ne[0], per_layer.ne[1]
    gate = context.unary(context.linear(index, "inp_gate", x, width))
    own = graph.view(per_layer, (width, tokens))
    mixed = context.linear(index, "proj", graph.same("mul", gate, own), context.hidden_size)
    x = graph.same("add", x, context.norm(index, "post_norm", mixed))
    return x
