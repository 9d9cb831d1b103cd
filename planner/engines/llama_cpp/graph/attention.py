"""Attention blocks of a graph: projections, the cache's rows, scores, output.

Source: llama.cpp v0.5.0 `src/llama-graph.cpp` (build_qkv, build_attn, build_attn_mha), `src/llama-kv-cache.cpp`
(cpy_k, cpy_v, get_k, get_v).
"""

from __future__ import annotations

from planner.engines.llama_cpp.graph.context import Batch, Context
from planner.engines.llama_cpp.graph.tensor import F16, Tensor
from planner.model.kinds.attention import Attention
from planner.model.tensor import Norm

SMALLEST_ROTATION = 64


def attention(context: Context, layer: int, spec: Attention, x: Tensor) -> Tensor:
    """One block with keys and values per head."""
    graph, tokens = context.graph, context.batch.tokens
    heads, groups, size = spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim
    value_size = spec.value_head_dim or size
    gate: Tensor | None = None
    k: Tensor | None
    v: Tensor | None
    if spec.gated_query:
        q, k, v, gate = _gated_projections(context, layer, spec, x)
    else:
        q, k, v = _projections(context, layer, spec, x)
        if spec.query_norm is not None and not _by_head(spec.query_norm, spec):
            q = context.norm(layer, "attn_q_norm", q, spec.query_norm)
            if k is not None and spec.key_norm is not None:
                k = context.norm(layer, "attn_k_norm", k, spec.key_norm)
        if not spec.fused or context.style.fused_copies or context.style.split_projections:
            q = graph.reshape(q, size, heads, tokens)
            k = None if k is None else graph.reshape(k, size, groups, tokens)
            v = None if v is None else graph.reshape(v, value_size, groups, tokens)
        if spec.query_norm is not None and _by_head(spec.query_norm, spec) and not context.style.norm_after_rope:
            q = context.norm(layer, "attn_q_norm", q, spec.query_norm)
        if k is not None and spec.key_norm is not None and _by_head(spec.key_norm, spec):
            k = k if context.style.norm_after_rope else context.norm(layer, "attn_k_norm", k, spec.key_norm)
    if context.style.value_norm and v is not None:
        v = graph.same("rms_norm", v)
    if spec.rotary_dim:
        q = context.rope(q)
        k = None if k is None else context.rope(k)
    if context.style.norm_after_rope and spec.query_norm is not None and k is not None:
        q = context.norm(layer, "attn_q_norm", q, spec.query_norm)
        k = context.norm(layer, "attn_k_norm", k, spec.key_norm)
    if context.style.scaled_query:
        q = graph.same("scale", q)
    if context.style.tempered and not spec.rotary_dim:
        q = graph.same("mul", q, context.input("attention scale", 1, 1, tokens))
    mixed = attend(context, layer, spec, q, k, v)
    if gate is not None:
        mixed = graph.same("mul", mixed, context.unary(gate))
    if spec.head_gate:
        gates = context.linear(layer, "attn_gate", x, heads)
        by_head = graph.reshape(mixed, value_size, heads, tokens)
        mixed = graph.reshape(
            graph.same("mul", by_head, graph.reshape(context.unary(gates), 1, heads, tokens)), *mixed.ne
        )
    return context.linear(layer, "attn_output", mixed, context.hidden_size, bias=spec.output_bias)


def _by_head(norm: Norm, spec: Attention) -> bool:
    return norm.size == spec.head_dim


def _projections(
    context: Context, layer: int, spec: Attention, x: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    graph, tokens = context.graph, context.batch.tokens
    if spec.fused and not context.style.split_projections:
        width = spec.query_size + spec.key_size + spec.value_size
        fused = context.linear(layer, "attn_qkv", x, width, bias=spec.query_bias)
        if context.style.fused_copies:
            parts = [
                graph.cont(graph.view(fused, (size, tokens), (fused.nb[1],)))
                for size in (spec.query_size, spec.key_size, spec.value_size)
            ]
            return parts[0], parts[1], parts[2]
        heads = (
            (spec.head_dim, spec.num_attention_heads),
            (spec.head_dim, spec.num_key_value_heads),
            (spec.value_head_dim or spec.head_dim, spec.num_key_value_heads),
        )
        views = [graph.view(fused, (size, count, tokens), (fused.item * size, fused.nb[1])) for size, count in heads]
        return views[0], views[1], views[2]
    q = context.linear(layer, "attn_q", x, spec.query_size, bias=spec.query_bias)
    if not spec.owns_key_value or not spec.keeps_cache:
        return q, None, None
    k = context.linear(layer, "attn_k", x, spec.key_size, bias=spec.key_bias)
    v = k if spec.value_from_key else context.linear(layer, "attn_v", x, spec.value_size, bias=spec.value_bias)
    return q, k, v


def _gated_projections(
    context: Context, layer: int, spec: Attention, x: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries and their gates come out of one matrix, head by head."""
    graph, tokens = context.graph, context.batch.tokens
    heads, groups, size = spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim
    both = context.linear(layer, "attn_q", x, 2 * spec.query_size, bias=spec.query_bias)
    k = context.linear(layer, "attn_k", x, spec.key_size, bias=spec.key_bias)
    v = context.linear(layer, "attn_v", x, spec.value_size, bias=spec.value_bias)
    strides = (both.item * 2 * size, both.item * 2 * size * heads)
    q = context.norm(layer, "attn_q_norm", graph.view(both, (size, heads, tokens), strides), spec.query_norm)
    k = context.norm(layer, "attn_k_norm", graph.reshape(k, size, groups, tokens), spec.key_norm)
    gate = graph.cont(graph.view(both, (size, heads, tokens), strides), size * heads, tokens)
    return q, k, graph.reshape(v, size, groups, tokens), gate


def attend(context: Context, layer: int, spec: Attention, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
    """Writes keys and values to the cache, and attends to it: [heads x value size, tokens]."""
    graph, batch = context.graph, context.batch
    windowed = context.style.separate_caches and bool(spec.sliding_window or spec.attention_chunk_size)
    value_size = spec.value_head_dim or spec.head_dim
    q_rotation, v_rotation = _rotations(context, spec, windowed, value_size)
    if q_rotation is not None:
        q = rotate(context, q, q_rotation)
        k = None if k is None else rotate(context, k, q_rotation)
    if v_rotation is not None and v is not None:
        v = rotate(context, v, v_rotation)
    graph.expand(q)
    for tensor in (k, v) if context.style.separate_caches else (v, k):
        if tensor is not None:
            graph.expand(tensor)
    home = context.device_of(layer) if batch.offload_cache else context.host
    cells = (batch.window_cells if windowed else batch.cells) * batch.streams
    which = "window " if windowed else ""
    keys = graph.cache(home, spec.key_size, cells)
    values = graph.cache(home, spec.value_size, cells)
    if k is not None:
        rows = context.cache_rows(f"{which}key rows", batch.tokens)
        flat = graph.view(k, (spec.key_size, batch.tokens), (k.nb[2],))
        graph.expand(graph.set_rows(keys, flat, rows))
    if v is not None:
        _store_values(context, spec, values, v, f"{which}value rows")
    mixed = scores(context, layer, spec, q, keys, values, windowed=windowed)
    return mixed if v_rotation is None else rotate(context, mixed, v_rotation)


def _store_values(context: Context, spec: Attention, values: Tensor, v: Tensor, name: str) -> None:
    """Rows of values; without flash attention the cache is transposed, so that every element is a row."""
    graph, batch = context.graph, context.batch
    width = spec.value_size
    if batch.flash_attention:
        flat = graph.view(v, (width, batch.tokens), (v.nb[2],))
        graph.expand(graph.set_rows(values, flat, context.cache_rows(name, batch.tokens)))
        return
    rows = context.cache_rows(name, batch.tokens * context.value_width)
    joined = v.nb[2] == v.item * width
    flat = graph.reshape(v, width, batch.tokens) if joined else graph.cont(v, width, batch.tokens)
    if width < context.value_width:
        flat = graph.pad(flat, context.value_width - width)
    target = graph.reshape(values, 1, values.ne[0] * values.ne[1])
    graph.expand(graph.set_rows(target, graph.reshape(flat, 1, flat.ne[0] * flat.ne[1]), rows))


def scores(
    context: Context, layer: int, spec: Attention, q: Tensor, keys: Tensor, values: Tensor, *, windowed: bool
) -> Tensor:
    """Attention on the cache, all of whose cells count in the worst case."""
    value_size = spec.value_head_dim or spec.head_dim
    graph, batch = context.graph, context.batch
    cells = batch.window_cells if windowed else batch.cells
    groups, streams = spec.num_key_value_heads, batch.streams
    k = graph.view(keys, (spec.head_dim, groups, cells, streams))
    if batch.flash_attention:
        v = graph.view(values, (value_size, groups, cells, streams))
    else:
        v = graph.view(values, (cells, groups, value_size, streams))
    k.nbytes = int(spec.key_size * cells * streams * batch.key_bytes)
    v.nbytes = int(spec.value_size * cells * streams * batch.value_bytes)
    sinks = context.weight(layer, "attn_sinks", spec.num_attention_heads) if spec.sinks else None
    return mix(context, q, k, v, context.mask(windowed), sinks)


def mix(
    context: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    sinks: Tensor | None,
    value_up: Tensor | None = None,
) -> Tensor:
    """q [d, heads, tokens], k and v [d, groups, cells, streams]: [heads x value size, tokens].

    Without flash attention v is [cells, groups, d, streams], but for MLA, whose values are part of the keys.

    Args:
        value_up: MLA's matrix from the latent to each head's values.
    """
    graph, batch = context.graph, context.batch
    streams = batch.streams
    rows = q.ne[2] // streams
    q = graph.view(q, (q.ne[0], q.ne[1], rows, streams), (q.nb[1], q.nb[2], q.nb[2] * rows))
    q, k, v = (graph.permute(tensor, 0, 2, 1, 3) for tensor in (q, k, v))
    if batch.flash_attention:
        mixed = graph.flash_attention(q, k, v, mask, sinks)
        if batch.copies_cache:
            mixed.extra_bytes = f16_copies(mixed.nbytes, k, v, batch, shared=value_up is not None)
        if value_up is not None:
            mixed = graph.mul_mat(value_up, graph.permute(mixed, 0, 2, 1, 3))
            mixed = graph.cont(graph.permute(mixed, 0, 2, 1, 3))
        mixed = graph.reshape(mixed, mixed.ne[0] * mixed.ne[1], mixed.ne[2] * mixed.ne[3])
    else:
        weights = graph.mul_mat(k, q)
        sources = [mask] if sinks is None else [mask, sinks]
        weights = graph.same("soft_max", weights, *sources)
        if value_up is not None:
            v = graph.cont(graph.transpose(v))
        mixed = graph.mul_mat(v, weights)
        if value_up is not None:
            mixed = graph.mul_mat(value_up, mixed)
        mixed = graph.permute(mixed, 0, 2, 1, 3)
        mixed = graph.cont(mixed, mixed.ne[0] * mixed.ne[1], mixed.ne[2] * mixed.ne[3])
        if not batch.offload_cache:
            mixed.backend = context.host
    graph.expand(mixed)
    return mixed


def f16_copies(result_bytes: int, k: Tensor, v: Tensor, batch: Batch, *, shared: bool) -> int:
    """Bytes behind the result that CUDA's and HIP's kernels need for a quantised cache in F16.

    Source: llama.cpp v0.5.0 ggml-cuda/fattn.cu ggml_cuda_flash_attn_ext_get_alloc_size.
    """
    end = result_bytes
    for tensor, element, skip in ((k, batch.key_bytes, False), (v, batch.value_bytes, shared)):
        if element != F16 and not skip:
            elements = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
            end = -(-end // 128) * 128 + elements * F16
    return end - result_bytes


def _rotations(
    context: Context, spec: Attention, windowed: bool, value_size: int
) -> tuple[Tensor | None, Tensor | None]:
    """Hadamard matrices for a quantised cache: the largest power of two in a key head, 64 for values."""
    batch = context.batch
    if not batch.rotates_cache:
        return None, None
    which = "window " if windowed else ""
    q_rotation = v_rotation = None
    if batch.key_bytes < F16 and spec.head_dim % SMALLEST_ROTATION == 0:
        size = SMALLEST_ROTATION
        while spec.head_dim % (2 * size) == 0:
            size *= 2
        q_rotation = context.input(f"{which}key rotation", size, size)
    if batch.value_bytes < F16 and value_size % SMALLEST_ROTATION == 0:
        v_rotation = context.input(f"{which}value rotation", SMALLEST_ROTATION, SMALLEST_ROTATION)
    return q_rotation, v_rotation


def rotate(context: Context, x: Tensor, rotation: Tensor) -> Tensor:
    """x times a Hadamard matrix, piece by piece."""
    graph, size = context.graph, rotation.ne[0]
    count = x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3] // size
    pieces = graph.reshape(x, size, count) if x.contiguous else graph.cont(x, size, count)
    return graph.reshape(graph.mul_mat(rotation, pieces), *x.ne)
