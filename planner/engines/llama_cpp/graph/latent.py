"""Multi-head latent attention in a graph: absorbed, on a cache of latents, or decompressed, on a cache of heads.

Source: llama.cpp v0.5.0 `src/models/deepseek2.cpp`.
"""

from __future__ import annotations

from planner.engines.llama_cpp.graph.attention import attend, mix
from planner.engines.llama_cpp.graph.context import Context
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

    Source: llama.cpp v0.5.0 `src/models/deepseek2.cpp`, the branch for files without key_length_mla.
    """
    graph, tokens = context.graph, context.batch.tokens
    heads, rank, nope, rope = spec.num_attention_heads, spec.kv_lora_rank, spec.qk_nope_head_dim, spec.qk_rope_head_dim
    q = graph.reshape(_query(context, layer, spec, x), spec.head_dim, heads, tokens)
    compressed = context.linear(layer, "attn_kv_a_mqa", x, rank + rope)
    stride = x.item * (rank + rope)
    key = context.rope(graph.view(compressed, (rope, 1, tokens), (stride, stride)))
    latent = context.norm(layer, "attn_kv_a_norm", graph.view(compressed, (rank, tokens), (stride,)))
    both = context.linear(layer, "attn_kv_b", latent, spec.up_projection_size)
    each = x.item * (nope + spec.v_head_dim)
    values = graph.cont(graph.view(both, (spec.v_head_dim, heads, tokens), (each, each * heads)))
    q = context.rope(q)
    keys = graph.concat(
        graph.view(both, (nope, heads, tokens), (each, each * heads)), graph.repeat(key, rope, heads, tokens), 0
    )
    plain = Attention(
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=spec.head_dim, value_head_dim=spec.v_head_dim
    )
    mixed = attend(context, layer, plain, q, keys, values)
    return context.linear(layer, "attn_output", mixed, context.hidden_size)


def _from_cache(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """ik_llama.cpp, MLA modes 2 and 3 on a prompt: keys and values of all heads in F16 from the cached latents.

    The products in F32 are made for as many heads at once as attention_max_batch MiB hold.

    Source: ik_llama.cpp `src/graphs/build_deepseek2.cpp` (pp_opt).
    """
    graph, batch = context.graph, context.batch
    tokens, heads, rank, cells = batch.tokens, spec.num_attention_heads, spec.kv_lora_rank, batch.cells
    nope, rope, value = spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim
    compressed = context.linear(layer, "attn_kv_a_mqa", x, rank + rope)
    stride = x.item * (rank + rope)
    key = context.rope(graph.view(compressed, (rope, 1, tokens), (stride, stride)))
    latent = context.norm(layer, "attn_kv_a_norm", graph.view(compressed, (rank, tokens), (stride,)))
    stored = graph.concat(graph.reshape(latent, rank, 1, tokens), key, 0)
    home = context.device_of(layer) if batch.offload_cache else context.host
    cache = graph.cache(home, rank + rope, cells)
    graph.expand(graph.copy_into(stored, graph.view(cache, (rank + rope, tokens))))
    turned = graph.view(cache, (rope, cells))
    if batch.key_bytes != F16:
        turned = graph.cast(turned, F16)
    plain = graph.view(cache, (rank, cells))
    at_once = heads_at_once(heads, cells * (nope + value) * 4, batch.attention_max_batch)
    q = context.rope(graph.reshape(_query(context, layer, spec, x), spec.head_dim, heads, tokens))
    q = graph.permute(q, 0, 2, 1, 3)
    if at_once == heads:
        graph.expand(q)
        keys, values = _heads_of_cache(context, layer, spec, plain, turned)
    else:
        keys, values = _heads_in_parts(context, layer, spec, plain, turned, at_once)
    mixed = graph.flash_attention(q, keys, values, context.mask(False), None)
    mixed = graph.reshape(mixed, value * heads, tokens)
    graph.expand(mixed)
    return context.linear(layer, "attn_output", mixed, context.hidden_size)


def _heads_of_cache(
    context: Context, layer: int, spec: LatentAttention, plain: Tensor, turned: Tensor
) -> tuple[Tensor, Tensor]:
    """(keys, values) of all heads out of one product."""
    graph, heads, cells = context.graph, spec.num_attention_heads, context.batch.cells
    nope, value = spec.qk_nope_head_dim, spec.v_head_dim
    made = graph.mul_mat(context.weight(layer, "attn_kv_b", spec.kv_lora_rank, (nope + value) * heads), plain)
    strides = (made.nb[1], made.item * (nope + value))
    values = graph.cast(graph.view(made, (value, cells, heads), strides), F16)
    fresh = graph.cast(graph.view(made, (nope, cells, heads), strides), F16)
    graph.expand(fresh)
    graph.expand(values)
    spread = Tensor("repeat", (spec.qk_rope_head_dim, cells, heads, 1), (turned,), item=F16)
    keys = graph.concat(spread, fresh, 0)
    graph.expand(keys)
    return keys, values


def _heads_in_parts(
    context: Context, layer: int, spec: LatentAttention, plain: Tensor, turned: Tensor, at_once: int
) -> tuple[Tensor, Tensor]:
    """(keys, values) of all heads, filled in by a few heads at a time."""
    graph, heads, cells = context.graph, spec.num_attention_heads, context.batch.cells
    nope, value = spec.qk_nope_head_dim, spec.v_head_dim
    keys = Tensor("repeat", (spec.head_dim, cells, heads, 1), (turned,), item=F16)
    values = Tensor("repeat", (value, cells, heads, 1), (turned,), item=F16)
    graph.expand(keys)
    graph.expand(values)
    for _ in range(heads // at_once):
        matrix = context.weight(layer, "attn_kv_b", spec.kv_lora_rank, (nope + value) * at_once)
        made = graph.mul_mat(matrix, plain)
        strides = (made.nb[1], made.item * (nope + value))
        part = graph.cast(graph.view(made, (value, cells, at_once), strides), F16)
        values = graph.in_place("set", values, part)
        graph.expand(values)
        keys = graph.in_place("set", keys, graph.view(made, (nope, cells, at_once), strides))
        graph.expand(keys)
    return keys, values


def heads_at_once(heads: int, head_bytes: int, most_mib: int) -> int:
    """Heads whose products are made together: all, or the largest even share that most_mib MiB hold."""
    total = head_bytes * heads // (1 << 20)
    if not most_mib or total <= most_mib:
        return heads
    for parts in range(2, heads):
        if heads % parts == 0 and total // parts <= most_mib:
            return heads // parts
    return 1


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
