"""The caches of one pipeline stage on one GPU, as this version of vLLM stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.engines.vllm.model.drafts import draft_of
from planner.engines.vllm.pool.cache_type import plain_layers
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.memory.cache.formats import CacheFormat, cache_format
from planner.memory.cache.kv_cache import LayerCache, layer_caches
from planner.model.caches import CompressedCache, IndexerCache, LatentCache
from planner.model.model import Model
from planner.model.spec import Layer

# Layers that share another's indexer had a cache of their own all the same (GLM-5.2, models/deepseek_v2.py)
_SHARED_INDEXERS = (0, 26, 0)


def stage_caches(model: Model, resolved: Resolved, form: CacheFormat, layers: slice) -> tuple[LayerCache, ...]:
    """Equal caches counted together; draft layers belong to the last stage."""
    plain = plain_layers(model, form)
    indices = range(*layers.indices(len(model.spec.layers)))
    run = [model.spec.layers[index] for index in indices if index not in plain]
    ends = [model.spec.layers[index] for index in indices if index in plain]
    if layers.stop == len(model.spec.layers):
        run += model.spec.draft_layers if resolved.asked.draft_tokens else ()
        draft = draft_of(model, resolved.asked)
        run += draft.layers if draft is not None else ()
    found = _caches(run, resolved, form)
    if ends:
        found += _caches(ends, resolved, cache_format("auto", resolved.dtype))
    compressed = any(isinstance(entry.cache, CompressedCache) for entry in found)
    if not compressed and parse_version(resolved.profile.version) < _SHARED_INDEXERS:
        found = _with_every_indexer(found)
    alignment = resolved.profile.latent_alignment_bytes
    if alignment > 1:
        # V0 pads each latent row (VLLM_CUDA_MEM_ALIGN_KV_CACHE): 1,152 B become 1,280
        found = tuple(
            replace(entry, slot_bytes=-(-entry.slot_bytes // alignment) * alignment)
            if isinstance(entry.cache, LatentCache)
            else entry
            for entry in found
        )
    return found


def _caches(layers: Sequence[Layer], resolved: Resolved, form: CacheFormat) -> tuple[LayerCache, ...]:
    asked = resolved.asked
    return layer_caches(
        layers,
        form,
        tensor_parallel_size=asked.tensor_parallel_size,
        state_dtype=resolved.dtype,
        recurrent_dtype=None if asked.mamba_ssm_cache_dtype == "auto" else asked.mamba_ssm_cache_dtype,
        honour_model_state_dtype=resolved.profile.honours_state_dtype,
        speculative_tokens=asked.proposed_tokens,
    )


def _with_every_indexer(found: tuple[LayerCache, ...]) -> tuple[LayerCache, ...]:
    latents = sum(entry.count for entry in found if isinstance(entry.cache, LatentCache))
    return tuple(replace(entry, count=latents) if isinstance(entry.cache, IndexerCache) else entry for entry in found)
