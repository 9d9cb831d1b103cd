"""Helpers of the family tests: specs of bundled configs and of small variations of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from planner.model.caches import KeyValueCache, LatentCache, StateCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.spec import ModelSpec

MODEL_CONFIGS = Path(__file__).resolve().parents[3] / "model_configs"
_BYTES = {None: 2, "bfloat16": 2, "float16": 2, "float32": 4}


def config_of(model: str) -> dict[str, object]:
    """The bundled config of a Hub id."""
    values: dict[str, object] = json.loads((MODEL_CONFIGS / f"{model.replace('/', '--')}.json").read_text())
    return values


def spec_of(model: str, **changes: object) -> ModelSpec:
    """The spec of a bundled config with some keys changed (None removes one)."""
    values = config_of(model) | changes
    return build_spec(RawConfig({key: value for key, value in values.items() if value is not None}))


def state_caches(spec: ModelSpec) -> list[StateCache]:
    """The recurrent state of every layer that has one."""
    return [cache for layer in spec.layers for cache in layer.caches() if isinstance(cache, StateCache)]


def attention_layers(spec: ModelSpec) -> list[int]:
    """Indices of the layers that cache tokens."""
    return [
        index
        for index, layer in enumerate(spec.layers)
        if any(isinstance(cache, KeyValueCache | LatentCache) for cache in layer.caches())
    ]


def kinds_of_state(spec: ModelSpec) -> Counter[str]:
    """How many layers keep each kind of state."""
    return Counter(cache.kind for cache in state_caches(spec))


def cache_bytes(spec: ModelSpec, length: int, *, plain_state: bool = False) -> int:
    """Logical bytes of one sequence with a bf16 cache; states in the type the model asks for, or all in bf16."""
    total = 0
    for layer in spec.layers:
        for cache in layer.caches():
            if isinstance(cache, KeyValueCache):
                per_slot = cache.num_key_value_heads * (cache.key_head_dim + cache.value_head_dim)
                total += cache.slots(length) * per_slot * 2
            elif isinstance(cache, LatentCache):
                total += cache.slots(length) * (cache.kv_lora_rank + cache.qk_rope_head_dim) * 2
            elif isinstance(cache, StateCache):
                for state in cache.states:
                    wanted = state.dtype if state.kind == "fixed" or not plain_state else None
                    total += state.elements() * _BYTES[wanted]
            else:
                raise AssertionError(f"no rule for {cache}")
    return total
