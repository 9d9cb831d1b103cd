"""Attention with keys and values per head: MHA, GQA and MQA, full, sliding, chunked or cross.

q  = num_attention_heads x head_dim
k  = num_key_value_heads x head_dim
v  = num_key_value_heads x value_head_dim
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, CrossCache, KeyValueCache
from planner.model.tensor import Norm, Part, Role, Tensor, linear, vector, whole


@dataclass(frozen=True, slots=True)
class AttentionNames:
    """Module names inside the attention block, as the checkpoint spells them."""

    block: str = "self_attn"
    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    output: str = "o_proj"
    fused: str = "qkv_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention block.

    Args:
        value_head_dim: size of a value head (None: head_dim).
        rotary_dim: elements of a head that rotary embedding turns (0: none).
        sliding_window: tokens kept by a windowed layer (None: all).
        attention_chunk_size: tokens of a chunked layer (None: all).
        fused: query, key and value are one matrix in the checkpoint.
        query_norm, key_norm: norms on queries and keys, named relative to the block.
        gated_query: the query projection also produces an output gate of its own size (Qwen3-Next).
        head_gate: a matrix of its own gives one output gate for each query head (Step 3.5).
        sinks: one learned sink logit per query head (gpt-oss).
        owns_key_value: has key and value projections (False: reads another layer's, weights and all).
        value_from_key: values are the key projection's output, so there is no value projection (Gemma 4).
        owns_weights: False where the block uses an earlier layer's weights, all of them (Zamba's shared blocks).
        keeps_cache: has a cache of its own (False: reads another layer's).
        causal: decoder attention; an encoder's keeps nothing.
        source_tokens: for cross attention, the encoder positions whose keys and values are kept.
        input_size: width of the input to q, k and v when it is not the hidden size.
        key_value_input_size: width of the input to k and v alone (cross attention on another width).
        input_first: stored as [in, out] (GPT-2).
        replicated: every GPU holds it whole (a tower that the engine runs with plain linear layers).
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    value_head_dim: int | None = None
    rotary_dim: int = 0
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    output_bias: bool = False
    fused: bool = False
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    gated_query: bool = False
    head_gate: bool = False
    sinks: bool = False
    owns_key_value: bool = True
    value_from_key: bool = False
    owns_weights: bool = True
    keeps_cache: bool = True
    causal: bool = True
    source_tokens: int | None = None
    input_size: int | None = None
    key_value_input_size: int | None = None
    input_first: bool = False
    replicated: bool = False
    role: Role = Role.ATTENTION
    names: AttentionNames = AttentionNames()

    @property
    def query_size(self) -> int:
        """Elements of all query heads."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Elements of all key heads."""
        return self.num_key_value_heads * self.head_dim

    @property
    def value_size(self) -> int:
        """Elements of all value heads."""
        return self.num_key_value_heads * (self.value_head_dim or self.head_dim)

    @property
    def output_input_size(self) -> int:
        """Width of the output projection's input: query heads times the value head size."""
        return self.num_attention_heads * (self.value_head_dim or self.head_dim)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        if not self.owns_weights:
            return ()
        names, role = self.names, self.role
        width = self.input_size or hidden_size
        source = self.key_value_input_size or width
        gate = 2 if self.gated_query else 1
        query_parts = (Part(self.query_size * gate, self.num_attention_heads),)
        key_parts = (Part(self.key_size, self.num_key_value_heads, replicable=True),)
        value_parts = (Part(self.value_size, self.num_key_value_heads, replicable=True),)
        found: list[Tensor] = []
        if self.fused:
            parts = query_parts + key_parts + value_parts
            total = sum(part.size for part in parts)
            found += linear(
                names.fused,
                total,
                width,
                role,
                bias=self.query_bias,
                column=parts,
                input_first=self.input_first,
            )
        else:
            found += linear(
                names.query,
                self.query_size * gate,
                width,
                role,
                bias=self.query_bias,
                column=query_parts,
                input_first=self.input_first,
            )
            if self.owns_key_value:
                found += linear(
                    names.key,
                    self.key_size,
                    source,
                    role,
                    bias=self.key_bias,
                    column=key_parts,
                    input_first=self.input_first,
                )
            if self.owns_key_value and not self.value_from_key:
                found += linear(
                    names.value,
                    self.value_size,
                    source,
                    role,
                    bias=self.value_bias,
                    column=value_parts,
                    input_first=self.input_first,
                )
        found += linear(
            names.output,
            hidden_size,
            self.output_input_size,
            role,
            bias=self.output_bias,
            row=whole(self.output_input_size, self.num_attention_heads),
            input_first=self.input_first,
        )
        if self.head_gate:
            found += linear(
                "g_proj", self.num_attention_heads, hidden_size, role, column=whole(self.num_attention_heads)
            )
        if self.sinks:
            found.append(vector("sinks", self.num_attention_heads, role, column=whole(self.num_attention_heads)))
        for norm in (self.query_norm, self.key_norm):
            if norm is not None:
                found += norm.tensors()
        if self.replicated:
            found = [tensor.whole() for tensor in found]
        return tuple(tensor.named(names.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """What the block keeps of a sequence."""
        value_head_dim = self.value_head_dim or self.head_dim
        if self.source_tokens is not None:
            return (
                CrossCache(
                    num_key_value_heads=self.num_key_value_heads,
                    key_head_dim=self.head_dim,
                    value_head_dim=value_head_dim,
                    source_tokens=self.source_tokens,
                ),
            )
        if not (self.causal and self.keeps_cache):
            return ()
        return (
            KeyValueCache(
                num_key_value_heads=self.num_key_value_heads,
                key_head_dim=self.head_dim,
                value_head_dim=value_head_dim,
                sliding_window=self.sliding_window,
                attention_chunk_size=self.attention_chunk_size,
            ),
        )
