"""Weights on one GPU as SGLang holds them after loading.

Attention is shared by tp / dp cards where data-parallel attention is on, experts by all of them. MLA models hold the
two halves of the up-projection a second time, in 16 bit.

Source: SGLang 0.5.9 models/deepseek_v2.py post_load_weights (w_kc, w_vc), layers/dp_attention.py,
layers/vocab_parallel_embedding.py.
"""

from __future__ import annotations

from planner.contract.component import Component
from planner.engines.sglang.budget.spread import Spread
from planner.engines.sglang.resolve import Resolved
from planner.engines.sglang.tables.quantization import export_format
from planner.memory.parallel.sharding import Parallelism, divides
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.memory.runtime import runtime_scheme
from planner.memory.schemes.stored_scheme import scheme_from_stored
from planner.memory.weights import StageWeights, stage_weights
from planner.model.kinds.latent import LatentAttention
from planner.model.model import Model


def scheme_of(model: Model, resolved: Resolved) -> WeightScheme:
    """How the weights are stored: the checkpoint's own scheme, or the export that was asked for.

    Raises:
        UnsupportedQuantization: a format that is not understood.
        UsageError: a name that this release does not take, or not for a plain checkpoint.
    """
    asked, dtype, release, capability = resolved.asked, resolved.dtype, resolved.release, resolved.gpu.capability
    key = ("sglang scheme", dtype, asked.quantization, asked.group_size, asked.quantize_lm_head, release, capability)
    found = model.memo.get(key)
    if isinstance(found, WeightScheme):
        return found
    scheme = scheme_from_stored(model)
    if scheme is None and model.spec.quantization_config is not None:
        scheme = scheme_from_config(model.spec, dtype=dtype)
    elif scheme is None and asked.quantization is not None:
        scheme = scheme_from_name(
            export_format(asked.quantization, release, asked.engine_version),
            model.spec,
            dtype=dtype,
            group_size=asked.group_size,
            quantize_lm_head=asked.quantize_lm_head,
        )
    elif scheme is None:
        scheme = plain_scheme(dtype)
    scheme = runtime_scheme(scheme, compute_capability=capability)
    model.memo[key] = scheme
    return scheme


def weights_of(
    model: Model,
    scheme: WeightScheme,
    spread: Spread,
    *,
    layers: slice = slice(None),
    first: bool = True,
    last: bool = True,
    with_towers: bool = True,
) -> StageWeights:
    """Weights of the fullest card of a stage, drafts aside."""
    key = ("sglang weights", scheme.label, id(scheme), spread, layers.start, layers.stop, first, last, with_towers)
    found = model.memo.get(key)
    if isinstance(found, StageWeights):
        return found
    parallelism = Parallelism(
        tensor_parallel_size=spread.attention_parallel_size,
        data_parallel_size=spread.attention_ranks,
        enable_expert_parallel=spread.expert_parallel_size > 1,
    )
    towers = [tensor for stack in model.spec.stacks for layer in stack.layers for tensor in layer.tensors(1)]
    made = stage_weights(
        model.spec,
        scheme,
        parallelism,
        layers=layers,
        first=first,
        last=last,
        with_towers=with_towers,
        # a tower whose heads do not divide is run whole on every card
        whole_towers=divides(towers, parallelism) is not None,
    )
    model.memo[key] = made
    return made


def absorbed_bytes(model: Model, spread: Spread, layers: slice = slice(None)) -> int:
    """The second copy of MLA's up-projection, in 16 bit."""
    key = ("sglang absorbed", layers.start, layers.stop)
    found = model.memo.get(key)
    if isinstance(found, int):
        return found * 2 // spread.attention_parallel_size
    elements = sum(
        mixer.up_projection_size * mixer.kv_lora_rank
        for layer in model.spec.layers[layers]
        for mixer in layer.mixers
        if isinstance(mixer, LatentAttention)
    )
    model.memo[key] = elements
    return elements * 2 // spread.attention_parallel_size


def weights_component(stage: StageWeights, absorbed: int, label: str) -> Component:
    """The weights as a line of the breakdown."""
    size = stage.total_bytes + absorbed
    copy = f" + {absorbed:,} of MLA's absorbed halves" if absorbed else ""
    return Component(
        name="weights",
        low=size,
        best=size,
        high=size,
        evidence="exact",
        formula=f"{stage.numel:,} elements as {label} = {stage.total_bytes:,}{copy}",
        source="config.json; SGLang 0.5.9 models/deepseek_v2.py" if absorbed else "config.json",
    )
