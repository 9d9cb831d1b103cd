"""The widest layer of a forward pass: what is alive at once on one card, for engines that count a step this way."""

from __future__ import annotations

from collections.abc import Iterable

from planner.memory.activations import attention_peak, expert_forward_peak, fused_expert_buffers, gated_mlp_peak
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.spec import Layer


def widest_layer_bytes(
    layers: Iterable[Layer], hidden_size: int, *, tokens: int, parallel_size: int, element_bytes: int = 2
) -> int:
    """Bytes of the fullest moment of any of these layers on `tokens` tokens: its MLP, its experts or its attention.

    Args:
        parallel_size: cards that share every matrix.
    """
    widest = 0
    for layer in {id(layer): layer for layer in layers}.values():
        block = layer.feed_forward
        if isinstance(block, Moe):
            shared = block.shared.intermediate_size // parallel_size if block.shared is not None else 0
            buffers = fused_expert_buffers(
                tokens=tokens,
                hidden_size=hidden_size,
                moe_intermediate_size=-(-block.moe_intermediate_size // parallel_size),
                experts_per_token=block.num_experts_per_tok,
                element_bytes=element_bytes,
            )
            beside = expert_forward_peak(
                tokens=tokens,
                hidden_size=hidden_size,
                num_experts=block.num_experts,
                shared_intermediate_size=shared,
                element_bytes=element_bytes,
            )
            widest = max(widest, buffers + beside)
        elif isinstance(block, Mlp):
            inner = -(-block.intermediate_size // parallel_size)
            size = gated_mlp_peak(
                tokens=tokens, hidden_size=hidden_size, intermediate_size=inner, element_bytes=element_bytes
            )
            widest = max(widest, size)
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                size = attention_peak(
                    tokens=tokens,
                    hidden_size=hidden_size,
                    query_size=-(-mixer.query_size // parallel_size),
                    key_value_size=-(-mixer.key_size // parallel_size),
                    element_bytes=element_bytes,
                )
                widest = max(widest, size)
    return widest
