"""What a step needs while it runs: the widest layer on one prefill chunk, the logits of a decode batch, workspaces.

SGLang reserves for these by rule (`defaults`); here they are counted, to say what a fraction leaves.

Source: SGLang 0.5.9 models/llama.py, layers/moe/fused_moe_triton, layers/attention/flashinfer_backend.py
(global_workspace_size 384 MiB, 512 for Qwen2, Qwen3 and MiMo; 2048 deterministic).
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.memory.layer_peak import widest_layer_bytes
from planner.model.model import Model
from planner.units import MIB, format_size

_BYTES: Final = 2
_LARGER_WORKSPACE: Final = ("qwen2", "qwen3", "mimo", "qwen2_moe", "qwen3_moe")
# eager layers keep more names alive than the sum of their largest tensors: from nothing to as much again
_SPREAD: Final = (0.6, 1.8)


def activation_peak(model: Model, *, tokens: int, rows: int, parallel_size: int) -> Component:
    """The peak of a prefill chunk of `tokens`, or of `rows` of logits, on one card."""
    widest = widest_layer_bytes(
        model.spec.layers, model.spec.hidden_size, tokens=tokens, parallel_size=parallel_size, element_bytes=_BYTES
    )
    logits = rows * model.spec.vocab_size * (_BYTES + 8)
    best = max(widest, logits)
    low, high = (round(best * factor) for factor in _SPREAD)
    formula = (
        f"the larger of widest layer on {tokens:,} tokens: {format_size(widest)}; logits {rows:,} x"
        f" {model.spec.vocab_size:,} x ({_BYTES} + 8)"
    )
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
