"""Multi-head latent attention in a graph: absorbed, on a cache of latents, or decompressed, on a cache of heads.

Source: llama.cpp v0.5.0 `src/models/deepseek2.cpp`.
"""

from __future__ import annotations

from planner.engines.llama_cpp.graph.attention import mix
from planner.engines.llama_cpp.graph.context import Context
from planner.engines.llama_cpp.graph.tensor import Tensor
from planner.model.kinds.latent import LatentAttention


def latent_attention(context: Context, layer: int, spec: LatentAttention, x: Tensor) -> Tensor:
    """One absorbed block: every head attends to the same latent and rotary key."""
    graph, batch = context.graph, context.batch
    tokens, heads, rank = batch.tokens, spec.num_attention_heads, spec.kv_lora_rank
    nope, rope, item = spec.qk_nope_head_dim, spec.qk_rope_head_dim, x.item
    if spec.q_lora_rank is None:
        q = context.linear(layer, "attn_q", x, spec.query_size)
    else:
        q = context.norm(layer, "attn_q_a_norm", context.linear(layer, "attn_q_a", x, spec.q_lora_rank))
        q = context.linear(layer, "attn_q_b", q, spec.query_size)
    q = graph.reshape(q, spec.head_dim, heads, tokens)
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
