"""A model as a framework with modules of its own lays it out, where a checkpoint joins what the framework keeps apart.

litgpt has one matrix for queries, keys and values and two for gate and up, whatever the checkpoint has, and adapts
queries, keys, values, gate and up each by its own A and B (litgpt 0.5.13 model.py LLaMAMLP, lora.py LoRAQKVLinear: rows
of A and B for each of the three); torchtune has all of them apart (0.6.1 models/phi3/_component_builders.py). Here they
are tensors of their own, which `blocks.litgpt` joins where it computes.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec


def taken_apart(spec: ModelSpec) -> ModelSpec:
    """The model with every projection a tensor of its own; layers that were one object still are."""
    made: dict[int, Layer] = {}
    for layer in spec.layers:
        made.setdefault(id(layer), _layer(layer))
    return replace(spec, layers=tuple(made[id(layer)] for layer in spec.layers))


def _layer(layer: Layer) -> Layer:
    mixers = tuple(_attention(kind) if isinstance(kind, Attention) else kind for kind in layer.mixers)
    fed = layer.feed_forward
    return replace(layer, mixers=mixers, feed_forward=replace(fed, fused=False) if isinstance(fed, Mlp) else fed)


def _attention(kind: Attention) -> Attention:
    if not kind.fused:
        return kind
    return replace(kind, fused=False, key_bias=kind.query_bias, value_bias=kind.query_bias)
