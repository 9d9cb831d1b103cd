"""What the tests of the dense families ask of a spec: bundled configs, KV bytes, windows, tensors by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.model.caches import KeyValueCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.kinds.attention import Attention
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Tensor
from planner.model.tensors import tensors

CONFIGS = Path(__file__).parents[3] / "model_configs"


def config(name: str, **changes: Any) -> dict[str, Any]:
    """A bundled config, some keys changed; None drops nothing, it sets null."""
    values = json.loads((CONFIGS / f"{name.replace('/', '--')}.json").read_text(encoding="utf-8"))
    return values | changes


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The config without these keys."""
    return {key: value for key, value in values.items() if key not in keys}


def spec_of(values: dict[str, Any]) -> ModelSpec:
    return build_spec(RawConfig(values))


def bundled(name: str) -> ModelSpec:
    return spec_of(config(name))


def kv_bytes(spec: ModelSpec, length: int, *, element_bytes: int = 2) -> int:
    """Bytes of keys and values that one sequence of `length` tokens keeps in all layers."""
    total = 0
    for layer in spec.layers:
        for cache in layer.caches():
            assert isinstance(cache, KeyValueCache)
            elements = cache.num_key_value_heads * (cache.key_head_dim + cache.value_head_dim)
            total += cache.slots(length) * elements * element_bytes
    return total


def attention(layer: Layer) -> Attention:
    (mixer,) = layer.mixers
    assert isinstance(mixer, Attention)
    return mixer


def windows(spec: ModelSpec) -> list[int | None]:
    return [attention(layer).sliding_window for layer in spec.layers]


def rotary_dims(spec: ModelSpec) -> list[int]:
    return [attention(layer).rotary_dim for layer in spec.layers]


def named(spec: ModelSpec) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in tensors(spec)}
