"""Helpers of the family tests: specs of bundled configs and of small variations of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.caches import CompressedCache, IndexerCache, KeyValueCache, LatentCache, StateCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.kinds.feed_forward import Moe
from planner.model.spec import Layer, ModelSpec
from planner.model.tensors import draft_tensors, tensors

MODEL_CONFIGS = Path(__file__).resolve().parents[3] / "model_configs"
_BYTES = {None: 2, "bfloat16": 2, "float16": 2, "float32": 4}


def config_of(model: str) -> dict[str, object]:
    """The bundled config of a Hub id."""
    values: dict[str, object] = json.loads((MODEL_CONFIGS / f"{model.replace('/', '--')}.json").read_text())
    return values


def spec_of(model: str, **changes: object) -> ModelSpec:
    """The spec of a bundled config with some keys changed (None removes one)."""
    values = {key: value for key, value in config_of(model).items() if key not in changes}
    values |= {key: value for key, value in changes.items() if value is not None}
    return build_spec(RawConfig(values))


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
    """Logical bytes of one sequence with a bf16 cache; states in the type the model asks for, or all in bf16.

    An indexer's key is one byte an element and an fp32 scale for each 128, as vLLM stores it.
    """
    total = 0
    for layer in spec.layers:
        for cache in layer.caches():
            if isinstance(cache, KeyValueCache):
                per_slot = cache.num_key_value_heads * (cache.key_head_dim + cache.value_head_dim)
                total += cache.slots(length) * per_slot * 2
            elif isinstance(cache, LatentCache):
                total += cache.slots(length) * (cache.kv_lora_rank + cache.qk_rope_head_dim) * 2
            elif isinstance(cache, IndexerCache):
                total += cache.slots(length) * (cache.index_head_dim + -(-cache.index_head_dim // 128) * 4)
            elif isinstance(cache, CompressedCache):
                total += cache.slots(length) * cache.width * _BYTES[cache.dtype]
            elif isinstance(cache, StateCache):
                for state in cache.states:
                    wanted = state.dtype if state.kind == "fixed" or not plain_state else None
                    total += state.elements() * _BYTES[wanted]
            else:
                raise AssertionError(f"no rule for {cache}")
    return total


def windows(spec: ModelSpec) -> list[int | None]:
    """The sliding window of each layer, None where it keeps every token."""
    return [getattr(layer.caches()[0], "sliding_window", None) for layer in spec.layers]


def expert_layers(spec: ModelSpec) -> list[int]:
    """Indices of the layers that have experts."""
    return [index for index, layer in enumerate(spec.layers) if isinstance(layer.feed_forward, Moe)]


def shares(spec: ModelSpec, **parallelism: int | bool) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the fullest GPU's share, drafts not included."""
    given = Parallelism(**parallelism)  # type: ignore[arg-type]
    return {tensor.name: local_shape(tensor, given) for tensor in tensors(spec)}


def buffers(spec: ModelSpec) -> int:
    """Elements that a checkpoint stores and nobody counts as parameters, drafts included."""
    layers: tuple[Layer, ...] = (*spec.layers, *spec.draft_layers)
    return sum(tensor.numel for layer in layers for tensor in layer.tensors(spec.hidden_size) if tensor.buffer)


def draft_parameters(spec: ModelSpec) -> int:
    """Weights of the draft layers."""
    return sum(tensor.numel for tensor in draft_tensors(spec))
