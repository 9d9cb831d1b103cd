"""LoRA slots: what vLLM sets aside for adapters before any is loaded.

    a linear layer   slots x rank x (input + output), each the part of it that this GPU holds
    experts          the same for every expert of this GPU, gate and up each with a matrix of its own (0.12 on)

Source: vLLM 0.19.0 `lora/layers/base_linear.py`, `column_parallel_linear.py`, `fused_moe.py`, `logits_processor.py`,
`lora/utils.py` get_supported_lora_modules; experts are adapted since `fused_moe.py` came (0.12.0, not in 0.10.2).
"""

from __future__ import annotations

from math import prod
from typing import Final

from planner.contract.component import Component, exact
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.model import Model
from planner.model.tensor import Role, Tensor

_ADAPTED: Final = (Role.ATTENTION, Role.MLP, Role.SHARED_EXPERT, Role.ROUTER, Role.RECURRENT)
_EXPERTS_FROM: Final = (0, 12, 0)
# The embedding has slots while adapters may bring words of their own (lora_extra_vocab_size, to 0.11)
_NO_EXTRA_VOCABULARY: Final = (0, 12, 0)
# Checkpoints whose experts are one matrix: gate and up share a slot (is_3d_moe_weight in vLLM 0.19.0 models/).
_FUSED_EXPERTS: Final = ("gpt_oss", "qwen3_vl_moe", "qwen3_5_moe")


def lora_slots(
    model: Model, resolved: Resolved, parallelism: Parallelism, *, layers: slice, first: bool, last: bool
) -> Component | None:
    """The slots of one GPU of a pipeline stage; None without --enable-lora."""
    slots, rank = resolved.asked.lora_slots, resolved.asked.max_lora_rank
    if not slots:
        return None
    experts = parse_version(resolved.profile.version) >= _EXPERTS_FROM
    spec, widths = model.spec, 0
    by_layer: dict[int, int] = {}
    for layer in spec.layers[layers]:
        if id(layer) not in by_layer:
            by_layer[id(layer)] = sum(
                _widths(tensor, parallelism, fused=spec.model_type in _FUSED_EXPERTS)
                for tensor in layer.tensors(spec.hidden_size)
                if tensor.linear and (tensor.role in _ADAPTED or (experts and tensor.role is Role.EXPERT))
            )
        widths += by_layer[id(layer)]
    if last:
        widths += spec.hidden_size + spec.vocab_size
    if first and parse_version(resolved.profile.version) < _NO_EXTRA_VOCABULARY:
        widths += spec.vocab_size + spec.hidden_size
    size = slots * rank * widths * resolved.element_bytes
    formula = f"{slots} slots x rank {rank} x {widths:,} inputs and outputs of linear layers x {resolved.element_bytes}"
    return exact("lora_adapters", size, formula, "vLLM 0.19.0 lora/layers")


def _widths(tensor: Tensor, parallelism: Parallelism, *, fused: bool) -> int:
    shape = local_shape(tensor, parallelism)
    experts = shape[0] if tensor.num_experts else 1
    width = shape[tensor.input_dim]
    out = prod(shape) // width // experts
    matrices = 2 if tensor.num_experts and not fused and "gate_up" in tensor.name else 1
    return experts * (matrices * width + out)
