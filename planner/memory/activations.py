"""What a forward pass needs while it runs, term by term, in bytes on one GPU.

    T  tokens in the batch              b  bytes of an activation element
    H  hidden_size                      I  intermediate_size on this GPU
    R  rows that reach the sampler      V  vocab_size
    k  experts a token uses             E  num_experts

Each function is one term; which of them are alive together is the engine's affair (planner.serving).
"""

from __future__ import annotations


def gated_mlp_peak(
    *, tokens: int, hidden_size: int, intermediate_size: int, element_bytes: int, keeps_gate: bool = False
) -> int:
    """Bytes alive when a gated MLP applies its activation: T x (3I + 3H) x b.

    gate_up (2I) and the product (I) together with the attention output, the old and the new residual (3H), which
    the caller still references. Source: vLLM 0.19.1 `models/llama.py` under piecewise compilation; the eager V0
    path has the same sum.

    `keeps_gate`: run eagerly, and gate_up still has a name when the down projection writes its H (vLLM 0.8.5
    `models/qwen2.py`, unlike `models/llama.py`): T x (3I + 4H) x b.
    """
    return tokens * (3 * intermediate_size + (4 if keeps_gate else 3) * hidden_size) * element_bytes


def plain_mlp_peak(*, tokens: int, hidden_size: int, intermediate_size: int, element_bytes: int) -> int:
    """Bytes alive when an ungated MLP applies its activation: T x (2I + 3H) x b."""
    return tokens * (2 * intermediate_size + 3 * hidden_size) * element_bytes


def attention_peak(*, tokens: int, hidden_size: int, query_size: int, key_value_size: int, element_bytes: int) -> int:
    """Bytes alive around attention: fused qkv, the split and rotated queries, keys and values, the output, 2H."""
    return tokens * (3 * query_size + 2 * key_value_size + 2 * hidden_size) * element_bytes


def expert_workspaces(
    *,
    tokens: int,
    hidden_size: int,
    moe_intermediate_size: int,
    experts_per_token: int,
    element_bytes: int,
    gated: bool = True,
) -> int:
    """The two buffers of vLLM's modular Triton experts: T x k x (max(I, H) + max(2I, H)) x b.

    Taken from the WorkspaceManager, which keeps them: they stay allocated through the sampler run and after.
    Source: vLLM 0.19.1 `fused_moe/fused_moe.py` TritonExperts.workspace_shapes, `v1/worker/workspace.py`.
    """
    up = 2 * moe_intermediate_size if gated else moe_intermediate_size
    rows = tokens * experts_per_token
    return rows * (max(moe_intermediate_size, hidden_size) + max(up, hidden_size)) * element_bytes


def expert_forward_peak(
    *, tokens: int, hidden_size: int, num_experts: int, shared_intermediate_size: int, element_bytes: int
) -> int:
    """What a MoE block holds beside its workspaces: output and residuals 4H, router logits in fp32, shared expert."""
    shared = 3 * shared_intermediate_size
    return tokens * ((4 * hidden_size + shared) * element_bytes + 4 * num_experts)


def fused_expert_buffers(
    *,
    tokens: int,
    hidden_size: int,
    moe_intermediate_size: int,
    experts_per_token: int,
    element_bytes: int,
    separate: bool = False,
) -> int:
    """Intermediate caches of the classic fused_experts: T x k x (max(2I, H) + I) x b + T x H x b.

    Freed after the layer. `separate`: the first and the third do not share their place (2I + H instead of the larger).
    Source: vLLM 0.6.6.post1 (separate), 0.8.5 and 0.10.2 `fused_moe/fused_moe.py` fused_experts_impl.
    """
    rows = tokens * experts_per_token
    outer = 2 * moe_intermediate_size + hidden_size if separate else max(2 * moe_intermediate_size, hidden_size)
    inner = outer + moe_intermediate_size
    return (rows * inner + tokens * hidden_size) * element_bytes


def sort_sampler_peak(*, rows: int, vocab_size: int, logits_bytes: int) -> int:
    """The PyTorch top-k/top-p sampler: R x V x (logits + 36).

    logits in the model's dtype, fp32 copy 4, sorted values 4, int64 indices 8, sort temporaries 20 (reverse index
    8, radix buffers 12). Source: vLLM 0.10.2 `v1/sample/ops/topk_topp_sampler.py`; temporaries from torch's
    segmented sort.
    """
    return rows * vocab_size * (logits_bytes + 36)


def random_sampler_peak(*, rows: int, vocab_size: int, logits_bytes: int) -> int:
    """A sampler without a sort: R x V x (logits + 12): fp32 copy, probabilities and exponential noise, 4 each.

    Source: vLLM 0.19.0 `v1/sample/sampler.py` (logits.to(float32)), `ops/topk_topp_sampler.py` (softmax,
    random_sample).
    """
    return rows * vocab_size * (logits_bytes + 12)


def triton_sampler_buffer(*, sm_count: int, rows: int, vocab_size: int) -> int:
    """The cached fp32 scratch of the Triton top-k/top-p kernel: one row of V for each program.

    Programs are min(SMs, R); the buffer has min(next power of two, SMs) rows. Source: vLLM 0.19.0
    `v1/sample/ops/topk_topp_triton.py`.
    """
    programs = min(sm_count, rows)
    allocated = min(1 << max(programs - 1, 0).bit_length(), sm_count)
    return allocated * vocab_size * 4


def latent_prefill_workspace(
    *, workspace_tokens: int, num_attention_heads: int, qk_nope_head_dim: int, v_head_dim: int, element_bytes: int
) -> int:
    """The up-projected keys and values that MLA's profile run allocates: tokens x heads x (nope + v) x b.

    Source: vLLM 0.19.1 `model_executor/layers/attention/mla_attention.py`.
    """
    return workspace_tokens * num_attention_heads * (qk_nope_head_dim + v_head_dim) * element_bytes


def hidden_rows(*, tokens: int, hidden_size: int, element_bytes: int) -> int:
    """A [tokens, hidden_size] tensor."""
    return tokens * hidden_size * element_bytes
