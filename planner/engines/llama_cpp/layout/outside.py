"""What a process holds on a card outside the buffers that the engine prints: context, modules, kernels' pools."""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from planner.contract.component import Component
from planner.engines.llama_cpp.layout.cache import CACHE_TYPES
from planner.engines.llama_cpp.resolve import Run
from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import Gpu
from planner.model.caches import KeyValueCache, LatentCache
from planner.model.model import Model
from planner.units import MIB


def context_of(gpu: Gpu, backend: str) -> Component:
    """The context and modules of one process."""
    for row in _rows():
        if row["backend"] == backend and any(fnmatchcase(gpu.id, pattern) for pattern in row["ids"].split(";")):
            low, best, high = (int(row[f"{side}_mib"]) * MIB for side in ("low", "best", "high"))
            measured = row["evidence"] == "measured"
            return Component(
                name="context",
                low=low,
                best=best,
                high=high,
                evidence="measured" if measured else "assumed",
                formula=f"driver minus the engine's buffers: {row['best_mib']} MiB ({row['count']} readings)",
                source=row["source"],
            )
    found = cuda_context(gpu)
    return Component(
        name="context",
        low=found.low_bytes,
        best=found.best_bytes,
        high=found.high_bytes,
        evidence="assumed",
        formula=f"a process's context on this kind of card: {found.best_bytes // MIB} MiB",
        source=found.source,
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = files("planner.engines.llama_cpp.tables").joinpath("outside.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def late_copies_bytes(model: Model, run: Run) -> int:
    """F16 copies of a quantised cache's widest layer, taken at the first long prompt where no buffer counts them.

    Source: llama.cpp before 2026-07 ggml-cuda/fattn-common.cuh (pool allocations).
    """
    if not run.flash_attention or run.release.has("counted_copies") or run.backend not in ("cuda", "rocm"):
        return 0
    keys, values = (CACHE_TYPES[kind] < 2 for kind in (run.cache.type_k, run.cache.type_v))
    cells = run.geometry.cells * run.geometry.streams
    widest = 0
    for cache_layer in model.caches:
        if isinstance(cache_layer, KeyValueCache):
            heads = cache_layer.num_key_value_heads
            width = heads * (keys * cache_layer.key_head_dim + values * cache_layer.value_head_dim)
        elif isinstance(cache_layer, LatentCache):
            width = keys * (cache_layer.kv_lora_rank + cache_layer.qk_rope_head_dim)
        else:
            continue
        widest = max(widest, width)
    return cells * widest * 2
