"""Multi-head latent attention in a graph: absorbed, on a cache of latents, or decompressed, on a cache of heads.

Source: llama.cpp v0.5.0 `src/models/deepseek2.cpp`.
"""

from __future__ import annotations

from planner.engines.llama_cpp.graph.attention import attend, mix
from planner.engines.llama_cpp.graph.context import Batch, Context
from planner.engines.llama_cpp.graph.tensor import F16, Tensor
from planner.model.kinds.attention import Attention
from planner.model.kinds.latent import LatentAttention

# ik_llama.cpp build_deepseek2.cpp: from this many tokens on keys and values are made from the cache for every head.
_MANY_TOKENS = 128


def latent_attention(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """One block, in the way that the release and its MLA mode take."""
    batch = context.batch
    if batch.mla == 0:
        return _full_heads(context, layer, spec, x)
    if batch.fork and batch.mla > 1 and batch.flash_attention and batch.tokens >= _MANY_TOKENS:
        return _from_cache(context, layer, spec, x)
    return _absorbed(context, layer, spec, x)


def _query(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    if spec.q_lora_rank is None:
        return context.linear(layer, "attn_q", x, spec.query_size)
    q = context.norm(layer, "attn_q_a_norm", context.linear(layer, "attn_q_a", x, spec.q_lora_rank))
    return context.linear(layer, "attn_q_b", q, spec.query_size)


def _full_heads(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """Keys and values of every head are made for each token, and cached so (files without MLA tensors).

    The fork turns the rotary part of the queries by itself and joins it with the rest.

    Source: llama.cpp v0.5.0 `src/models/deepseek2.cpp`, the branch for files without key_length_mla; ik_llama.cpp.
    """
    graph, tokens = context.graph, context.batch.tokens
    heads, rank, nope, rope = spec.num_attention_heads, spec.kv_lora_rank, spec.qk_nope_head_dim, spec.qk_rope_head_dim
    q = graph.reshape(_query(context, layer, spec, x), spec.head_dim, heads, tokens)
    turned = context.rope(graph.view(q, (rope, heads, tokens), q.nb[1:3])) if context.batch.fork else None
    plain_query = graph.view(q, (nope, heads, tokens), q.nb[1:3])
    compressed = context.linear(layer, "attn_kv_a_mqa", x, rank + rope)
    stride = x.item * (rank + rope)
    key = context.rope(graph.view(compressed, (rope, 1, tokens), (stride, stride)))
    latent = context.norm(layer, "attn_kv_a_norm", graph.view(compressed, (rank, tokens), (stride,)))
    both = context.linear(layer, "attn_kv_b", latent, spec.up_projection_size)
    each = x.item * (nope + spec.v_head_dim)
    values = graph.cont(graph.view(both, (spec.v_head_dim, heads, tokens), (each, each * heads)))
    q = context.rope(q) if turned is None else graph.concat(plain_query, turned, 0)
    keys = graph.concat(
        graph.view(both, (nope, heads, tokens), (each, each * heads)), graph.repeat(key, rope, heads, tokens), 0
    )
    plain = Attention(
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=spec.head_dim, value_head_dim=spec.v_head_dim
    )
    mixed = attend(context, layer, plain, q, keys, values)
    return context.linear(layer, "attn_output", mixed, context.hidden_size)


def _from_cache(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """ik_llama.cpp, MLA modes 2 and 3 on a prompt: keys and values of all heads are made from the cached latents.

    The products in F32 are made for as many heads at once as attention_max_batch MiB hold, and each part is attended to
    by itself. Until 2026-01-31 the parts' attention stands behind the last of them in the graph, so that the keys and
    values of all heads are there at once.

    Source: ik_llama.cpp dc663fe63 `src/llama.cpp` (build_deepseek2), b85a2a50d, 8960c5ba5.
    """
    graph, batch = context.graph, context.batch
    tokens, heads, rank, cells = batch.tokens, spec.num_attention_heads, spec.kv_lora_rank, batch.cells
    rope, value = spec.qk_rope_head_dim, spec.v_head_dim
    cache = _store_latent(context, layer, spec, x)
    plain = graph.view(cache, (rank, cells))
    turned = graph.view(cache, (rope, cells))
    item = F16 if context.host else batch.key_bytes
    if batch.key_bytes != item:
        turned = graph.cast(turned, F16)
    part = heads_at_once(heads, cells * (spec.qk_nope_head_dim + value) * 4, batch)
    spread = _stored(Tensor("repeat", (rope, cells, part, 1), (turned,), item=F16), item)
    q = graph.permute(_turned_query(context, layer, spec, x), 0, 2, 1, 3)
    graph.expand(q)
    mixed: Tensor | None = None
    for _ in range(heads // part):
        keys, values = _heads_of_cache(context, layer, spec, plain, spread, item)
        own = graph.view(q, (spec.head_dim, tokens, part), q.nb[1:3])
        own = graph.reshape(graph.flash_attention(own, keys, values, context.mask(False), None), value * part, tokens)
        mixed = own if mixed is None else graph.concat(mixed, own, 0)
        if batch.attends_in_parts:
            graph.expand(mixed)
    assert mixed is not None
    graph.expand(mixed)
    return context.linear(layer, "attn_output", mixed, context.hidden_size)


def _store_latent(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """The fork's cache, with the batch's rotary keys and latents written to it."""
    graph, batch = context.graph, context.batch
    tokens, rank, rope = batch.tokens, spec.kv_lora_rank, spec.qk_rope_head_dim
    compressed = context.linear(layer, "attn_kv_a_mqa", x, rank + rope)
    stride = x.item * (rank + rope)
    key = context.rope(graph.view(compressed, (rope, 1, tokens), (stride, stride)))
    latent = context.norm(layer, "attn_kv_a_norm", graph.view(compressed, (rank, tokens), (stride,)))
    stored = graph.concat(graph.permute(key, 0, 2, 1, 3), latent, 0)
    home = context.device_of(layer) if batch.offload_cache else context.host
    cache = graph.cache(home, rank + rope, batch.cells)
    graph.expand(graph.copy_into(stored, graph.view(cache, (rank + rope, tokens))))
    return cache


def _turned_query(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """The fork's queries [head size, heads, tokens]: the rotary part is turned by itself and goes first."""
    graph, tokens, heads = context.graph, context.batch.tokens, spec.num_attention_heads
    q = graph.reshape(_query(context, layer, spec, x), spec.head_dim, heads, tokens)
    turned = context.rope(graph.view(q, (spec.qk_rope_head_dim, heads, tokens), (q.nb[1], q.nb[2])))
    return graph.concat(turned, graph.view(q, (spec.qk_nope_head_dim, heads, tokens), (q.nb[1], q.nb[2])), 0)


def _heads_of_cache(
    context: Context, layer: int, spec: LatentAttention, plain: Tensor, spread: Tensor, item: float
) -> tuple[Tensor, Tensor]:
    """(keys, values) of as many heads as the rotary key was spread to, out of one product."""
    graph, cells, part = context.graph, context.batch.cells, spread.ne[2]
    nope, value = spec.qk_nope_head_dim, spec.v_head_dim
    made = graph.mul_mat(context.weight(layer, "attn_kv_b", spec.kv_lora_rank, (nope + value) * part), plain)
    strides = (made.nb[1], made.item * (nope + value))
    values = _stored(graph.cast(graph.view(made, (value, cells, part), strides), F16), item)
    fresh = _stored(graph.cast(graph.view(made, (nope, cells, part), strides), F16), item)
    graph.expand(fresh)
    graph.expand(values)
    keys = _stored(graph.concat(spread, fresh, 0), item)
    graph.expand(keys)
    return keys, values


def _stored(tensor: Tensor, item: float) -> Tensor:
    """The tensor in the cache's type (quantised ones on a CPU alone; cards take F16)."""
    tensor.nbytes = int(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * item)
    return tensor


def heads_at_once(heads: int, head_bytes: int, batch: Batch) -> int:
    """Heads whose products are made together: all, or the largest share that attention_max_batch MiB hold.

    Until 2026-01-31 shares are halves of halves.
    """
    total, most = head_bytes * heads // (1 << 20), batch.attention_max_batch
    if not most or total <= most:
        return heads
    if batch.attends_in_parts:
        return next((heads // parts for parts in range(2, heads) if heads % parts == 0 and total // parts <= most), 1)
    while heads % 2 == 0 and total > most:
        heads, total = heads // 2, total // 2
    return heads


def _absorbed(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """Every head attends to the same latent and rotary key."""
    graph, batch = context.graph, context.batch
    tokens, heads, rank = batch.tokens, spec.num_attention_heads, spec.kv_lora_rank
    nope, rope, item = spec.qk_nope_head_dim, spec.qk_rope_head_dim, x.item
    q = graph.reshape(_query(context, layer, spec, x), spec.head_dim, heads, tokens)
    compressed = context.linear(layer, "attn_kv_a_mqa", x, rank + rope)
    stride = item * (rank + rope)
    latent = graph.view(compressed, (rank, tokens), (stride,))
    key = graph.view(compressed, (rope, 1, tokens), (stride, stride))
    if spec.rotary:
        key = context.rope(key)
    latent = context.norm(layer, "attn_kv_a_norm", latent)
    plain = graph.view(q, (nope, heads, tokens), (q.nb[1], q.nb[2]))
    turned = graph.view(q, (rope, heads, tokens), (q.nb[1], q.nb[2]))
    if spec.rotary:
        turned = context.rope(turned)
    plain = graph.permute(plain, 0, 2, 1, 3)
    absorbed = graph.mul_mat(context.weight(layer, "attn_k_b", nope, rank, heads), plain)
    absorbed = graph.permute(absorbed, 0, 2, 1, 3)
    q = graph.concat(absorbed, turned, 0)
    latent = graph.reshape(latent, rank, 1, tokens)
    k = graph.concat(latent, key, 0)
    for tensor in (q, latent, k):
        graph.expand(tensor)
    home = context.device_of(layer) if batch.offload_cache else context.host
    keys = graph.cache(home, rank + rope, batch.cells * batch.streams)
    rows = context.cache_rows("key rows", tokens)
    graph.expand(graph.set_rows(keys, graph.view(k, (rank + rope, tokens), (k.nb[2],)), rows))
    cached = graph.view(keys, (rank + rope, 1, batch.cells, batch.streams))
    cached.nbytes = int((rank + rope) * batch.cells * batch.streams * batch.key_bytes)
    values = graph.view(cached, (rank, 1, batch.cells, batch.streams), cached.nb[1:])
    up = context.weight(layer, "attn_v_b", rank, spec.v_head_dim, heads)
    mixed = mix(context, q, cached, values, context.mask(False), None, value_up=up)
    return context.linear(layer, "attn_output", mixed, context.hidden_size)
