"""Keys, values and recurrent states: bytes of each layer.

    keys, values   cells * streams * (key width * bytes(type_k) + value width * bytes(type_v))
    states         (R + S) * 4 * slots * (1 + drafted tokens)

MLA keeps one latent with its rotary key. Without flash attention every layer's values are as wide as the widest.

Source: llama.cpp v0.5.0 `src/llama-kv-cache.cpp`, `src/llama-memory-recurrent.cpp`, `src/llama-hparams.cpp`
(n_embd_r, n_embd_s); ik_llama.cpp `src/llama.cpp` for its MLA modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from planner.engines.llama_cpp.layout.geometry import Geometry
from planner.model.caches import CacheLayer, IndexerCache, KeyValueCache, LatentCache, StateCache
from planner.model.kinds.latent import LatentAttention
from planner.model.spec import Layer, ModelSpec

CACHE_TYPES: Final[Mapping[str, Fraction]] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "bf16": Fraction(2),
    "q8_0": Fraction(34, 32),
    "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32),
    "q4_1": Fraction(20, 32),
    "q4_0": Fraction(18, 32),
    "iq4_nl": Fraction(18, 32),
    "q6_0": Fraction(26, 32),
}
"""Bytes of one cached element (ggml.h; q6_0 is ik_llama.cpp's)."""
_STATE_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """How a cache is kept.

    Args:
        mla: ik_llama.cpp's mode (0: full heads, 1: latent, without flash attention its transpose too; 2, 3: latent);
            3 is what llama.cpp does with files that have MLA tensors.
    """

    type_k: str = "f16"
    type_v: str = "f16"
    flash_attention: bool = True
    mla: int = 3
    rollback: int = 0
    split_windows: bool = True


def layer_bytes(layer: Layer, geometry: Geometry, settings: CacheSettings, widest_value: int) -> tuple[int, int, int]:
    """(full cache, window cache, states) of one layer, in bytes."""
    full = window = state = 0
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            full += _latent(mixer, geometry, settings)
            continue
        for cache in mixer.caches():
            if isinstance(cache, KeyValueCache):
                windowed = settings.split_windows and cache.bounded and geometry.window_cells > 0
                cells = (geometry.window_cells if windowed else geometry.cells) * geometry.streams
                size = _heads(cache, cells, settings, widest_value)
                window, full = (window + size, full) if windowed else (window, full + size)
            elif isinstance(cache, StateCache):
                state += state_bytes(cache, geometry.slots, settings.rollback)
    return full, window, state


def _heads(cache: KeyValueCache, cells: int, settings: CacheSettings, widest_value: int) -> int:
    keys = cache.num_key_value_heads * cache.key_head_dim
    values = cache.num_key_value_heads * cache.value_head_dim
    if not settings.flash_attention:
        values = max(values, widest_value)
    return int(cells * (keys * CACHE_TYPES[settings.type_k] + values * CACHE_TYPES[settings.type_v]))


def _latent(mixer: LatentAttention, geometry: Geometry, settings: CacheSettings) -> int:
    cells = geometry.cells * geometry.streams
    k, v = CACHE_TYPES[settings.type_k], CACHE_TYPES[settings.type_v]
    if settings.mla == 0:
        heads = mixer.num_attention_heads
        return int(cells * heads * (mixer.head_dim * k + mixer.v_head_dim * v))
    latent = cells * (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * k
    if settings.mla == 1 and not settings.flash_attention:
        latent += cells * mixer.kv_lora_rank * v
    return int(latent)


def state_bytes(cache: StateCache, slots: int, rollback: int) -> int:
    """Bytes of a recurrent layer's states, in F32 whatever the cache's type."""
    return cache.elements() * _STATE_BYTES * slots * (1 + rollback)


def widest_value(spec: ModelSpec, *, windowed: bool | None = None) -> int:
    """Elements of the widest layer's values; of windowed or full layers alone if told so."""
    widths = [
        cache.num_key_value_heads * cache.value_head_dim
        for cache in _caches(spec)
        if isinstance(cache, KeyValueCache) and windowed in (None, cache.bounded)
    ]
    return max(widths, default=0)


def _caches(spec: ModelSpec) -> list[CacheLayer]:
    distinct = {id(layer): layer for layer in spec.layers}
    return [cache for layer in distinct.values() for cache in layer.caches()]


def window_of(spec: ModelSpec) -> int:
    """The widest sliding window; 0 where no layer has one."""
    windows = [0]
    for cache in _caches(spec):
        if isinstance(cache, KeyValueCache):
            windows.append(cache.sliding_window or cache.attention_chunk_size or 0)
    return max(windows)


def unsupported_caches(spec: ModelSpec) -> str:
    """Why this model's caches are not known here; "" where they are."""
    for cache in _caches(spec):
        if isinstance(cache, IndexerCache):
            return "the cache of a sparse-attention indexer (DSA) has classes of its own in llama.cpp"
        if not isinstance(cache, KeyValueCache | LatentCache | StateCache):
            return f"a {type(cache).__name__} is not known for llama.cpp"
    return ""
