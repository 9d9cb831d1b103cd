"""What a step needs while it runs: the widest layer on one prefill chunk, the logits of a decode batch, workspaces.

SGLang reserves for these by rule (`defaults`); here they are counted, to say what a fraction leaves.

Source: SGLang 0.5.9 models/llama.py, layers/moe/fused_moe_triton, layers/attention/flashinfer_backend.py
(global_workspace_size 384 MiB, 512 for Qwen2, Qwen3 and MiMo; 2048 deterministic).
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.memory.activations import attention_peak, expert_forward_peak, fused_expert_buffers, gated_mlp_peak
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.model import Model
from planner.units import MIB, format_size

_BYTES: Final = 2
_LARGER_WORKSPACE: Final = ("qwen2", "qwen3", "mimo", "qwen2_moe", "qwen3_moe")
# eager layers keep more names alive than the sum of their largest tensors: from nothing to as much again
_SPREAD: Final = (0.6, 1.8)


def activation_peak(model: Model, *, tokens: int, rows: int, parallel_size: int) -> Component:
    """The peak of a prefill chunk of `tokens`, or of `rows` of logits, on one card."""
    hidden = model.spec.hidden_size
    widest = 0
    for layer in {id(layer): layer for layer in model.spec.layers}.values():
        block = layer.feed_forward
        if isinstance(block, Moe):
            inner = -(-block.moe_intermediate_size // parallel_size)
            shared = block.shared.intermediate_size // parallel_size if block.shared is not None else 0
            size = fused_expert_buffers(
                tokens=tokens,
                hidden_size=hidden,
                moe_intermediate_size=inner,
                experts_per_token=block.num_experts_per_tok,
                element_bytes=_BYTES,
            ) + expert_forward_peak(
                tokens=tokens,
                hidden_size=hidden,
                num_experts=block.num_experts,
                shared_intermediate_size=shared,
                element_bytes=_BYTES,
            )
            widest = max(widest, size)
        elif isinstance(block, Mlp):
            inner = -(-block.intermediate_size // parallel_size)
            widest = max(
                widest,
                gated_mlp_peak(tokens=tokens, hidden_size=hidden, intermediate_size=inner, element_bytes=_BYTES),
            )
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                size = attention_peak(
                    tokens=tokens,
                    hidden_size=hidden,
                    query_size=-(-mixer.query_size // parallel_size),
                    key_value_size=-(-mixer.key_size // parallel_size),
                    element_bytes=_BYTES,
                )
                widest = max(widest, size)
    logits = rows * model.spec.vocab_size * (_BYTES + 8)
    best = max(widest, logits)
    low, high = (round(best * factor) for factor in _SPREAD)
    formula = f"widest layer on {tokens:,} tokens {format_size(widest)}; logits of {rows:,} rows {format_size(logits)}"
    return Component(
        name="activation_peak",
        low=low,
        best=best,
        high=high,
        evidence="derived",
        formula=formula,
        source="SGLang 0.5.9 models/, layers/moe/fused_moe_triton",
    )


def attention_workspace(model_type: str, *, backend: str | None, deterministic: bool) -> Component:
    """FlashInfer's workspace; other backends have their own, smaller ones."""
    best = 2048 if deterministic else 512 if model_type in _LARGER_WORKSPACE else 384
    low = best if backend == "flashinfer" else 0
    return Component(
        name="attention_workspace",
        low=low * MIB,
        best=best * MIB,
        high=best * MIB,
        evidence="derived" if low else "assumed",
        formula=f"FlashInfer's workspace: {best} MiB; less with other kernels",
        source="SGLang 0.5.9 layers/attention/flashinfer_backend.py",
    )
