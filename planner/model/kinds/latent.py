"""Multi-head latent attention (MLA): keys and values of all heads are made from one compressed vector per token.

q_a   [q_lora_rank, H], q_b [heads x (nope + rope), q_lora_rank]; or one q [heads x (nope + rope), H]
kv_a  [kv_lora_rank + rope, H], kv_b [heads x (nope + v), kv_lora_rank]
o     [H, heads x v]

Sources: DeepSeek-V2 (arXiv 2405.04434), section 2.1; transformers 5.24 modeling_deepseek_v3; vLLM 0.19.1
models/deepseek_v2.py (q_a and kv_a whole on every GPU, q_b and kv_b cut by heads).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.caches import CacheLayer, LatentCache
from planner.model.kinds.indexer import Indexer
from planner.model.tensor import Norm, Role, Tensor, linear, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """One latent attention block.

    Args:
        q_lora_rank: width of the compressed query (None: queries straight from the hidden state).
        kv_lora_rank: width of the compressed keys and values, which is what the cache keeps.
        qk_nope_head_dim, qk_rope_head_dim: the parts of a query or key head without and with rotary position; the
            rotary key is shared by all heads and cached beside the compressed vector.
        v_head_dim: size of a value head.
        rotary: False where the rotary part is kept but not rotated (Kimi-Linear).
        bias: q_a, kv_a and o have biases.
        indexer: chooses the tokens that are attended to; None: all, or those an earlier layer's indexer chose.
        output_gate: a gate of the attention's output, [heads x v, H] (Kimi K3).
        block: module name.
    """

    num_attention_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    rotary: bool = True
    bias: bool = False
    indexer: Indexer | None = None
    output_gate: bool = False
    role: Role = Role.ATTENTION
    block: str = "self_attn"

    @property
    def head_dim(self) -> int:
        """Elements of a query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def rotary_dim(self) -> int:
        """Elements of a head that rotary embedding turns."""
        return self.qk_rope_head_dim if self.rotary else 0

    @property
    def query_size(self) -> int:
        """Elements of all query heads."""
        return self.num_attention_heads * self.head_dim

    @property
    def output_input_size(self) -> int:
        """Width of the output projection's input: heads times the value head size."""
        return self.num_attention_heads * self.v_head_dim

    @property
    def up_projection_size(self) -> int:
        """Rows of kv_b: the rotary-free keys and the values of all heads."""
        return self.num_attention_heads * (self.qk_nope_head_dim + self.v_head_dim)

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the block for a residual stream of `hidden_size`."""
        role, heads = self.role, self.num_attention_heads
        by_query_head = whole(self.query_size, heads)
        by_value_head = whole(self.output_input_size, heads)
        found: list[Tensor] = []
        if self.q_lora_rank is None:
            found += linear("q_proj", self.query_size, hidden_size, role, column=by_query_head)
        else:
            found += linear("q_a_proj", self.q_lora_rank, hidden_size, role, bias=self.bias)
            found += Norm("q_a_layernorm", self.q_lora_rank).tensors()
            found += linear("q_b_proj", self.query_size, self.q_lora_rank, role, column=by_query_head)
        compressed = self.kv_lora_rank + self.qk_rope_head_dim
        found += linear("kv_a_proj_with_mqa", compressed, hidden_size, role, bias=self.bias)
        found += Norm("kv_a_layernorm", self.kv_lora_rank).tensors()
        by_pair = whole(self.up_projection_size, heads)
        found += linear("kv_b_proj", self.up_projection_size, self.kv_lora_rank, role, column=by_pair)
        if self.output_gate:
            found += linear("g_proj", self.output_input_size, hidden_size, role, column=by_value_head)
        found += linear("o_proj", hidden_size, self.output_input_size, role, bias=self.bias, row=by_value_head)
        if self.indexer is not None:
            found += self.indexer.tensors(hidden_size)
        return tuple(tensor.named(self.block) for tensor in found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """The compressed vector and rotary key of every token, and the indexer's key."""
        latent = LatentCache(kv_lora_rank=self.kv_lora_rank, qk_rope_head_dim=self.qk_rope_head_dim)
        return (latent,) if self.indexer is None else (latent, *self.indexer.caches())
