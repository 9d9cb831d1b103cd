"""Bytes of a token in the pool, on one GPU: what SGLang sizes the pool with, and what it then allocates.

    keys and values   max(1, kv_heads / tp) x (head_dim + v_head_dim) x layers x element
    latent (MLA)      (kv_lora_rank + qk_rope_head_dim) x layers x element, the same on every GPU
    sparse latent     the row, raw or scaled, x layers + (width + 4 per 128) of the indexer's key x layers
    fp4               half of it and one scale byte per 16 elements; mxfp8: fp8 and one byte per 32

Every layer that attends pays, windows and shared caches included, unless the pool is split (`windows`). tp is the
attention's own: tensor parallel over data parallel.

Source: SGLang 0.5.23 model_executor/pool_configurator.py DefaultPoolConfigurator._compute_cell_size,
mem_cache/kv_cache_configurator.py calculate_mla_kv_cache_dim; 0.4.6 to 0.5.16 model_runner.py profile_max_num_token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.engines.sglang.tables.releases import Release, rules_at
from planner.errors import UnsupportedQuantization
from planner.memory.cache.formats import CacheFormat
from planner.memory.cache.kv_cache import local_key_value_heads
from planner.model.caches import CacheLayer, IndexerCache, KeyValueCache, LatentCache
from planner.model.spec import Layer

SPARSE_SCALE_BLOCK: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Bytes of one token on one GPU.

    Args:
        sized_bytes: what the number of tokens is computed with.
        allocated_bytes: what a token takes in the pool that is then made.
        layers: layers that hold it.
        formula: the arithmetic with its numbers.
    """

    sized_bytes: int
    allocated_bytes: int
    layers: int
    formula: str


NO_CELL: Final = Cell(sized_bytes=0, allocated_bytes=0, layers=0, formula="no layer attends")


def attention_layers(layers: tuple[Layer, ...], *, recurrent: bool) -> tuple[int, CacheLayer | None]:
    """How many layers have rows in the pool, and the geometry they are counted with (the full-length one).

    A model without recurrent layers gets rows for all of its layers, those that share an earlier cache included.
    """
    own = [_main_cache(layer) for layer in layers]
    holding = [cache for cache in own if cache is not None]
    if not holding:
        return 0, None
    unbounded = [cache for cache in holding if not cache.bounded]
    geometry = (unbounded or holding)[0]
    return (len(holding) if recurrent else len(layers)), geometry


def _main_cache(layer: Layer) -> KeyValueCache | LatentCache | None:
    for cache in layer.caches():
        if isinstance(cache, KeyValueCache | LatentCache):
            return cache
    return None


def cell_of(
    layers: tuple[Layer, ...],
    form: CacheFormat,
    *,
    release: Release,
    attention_parallel_size: int,
    recurrent: bool,
    sparse_backend: str = "",
) -> Cell:
    """The cost of a token of these layers (a pipeline stage's, or a draft's).

    Args:
        form: the cache's storage format.
        attention_parallel_size: GPUs that share the attention heads.
        recurrent: the model has layers with a state instead of a cache.
        sparse_backend: kernels of sparse latent models; on AMD with "hip/" before them.

    Raises:
        UnsupportedQuantization: a format that such a cache cannot have.
        UsageError: heads that the GPUs cannot share.
    """
    count, geometry = attention_layers(layers, recurrent=recurrent)
    if geometry is None:
        return NO_CELL
    if isinstance(geometry, LatentCache):
        return _latent_cell(layers, geometry, count, form, release=release, sparse_backend=sparse_backend)
    assert isinstance(geometry, KeyValueCache)
    heads = local_key_value_heads(geometry, attention_parallel_size)
    value = geometry.value_head_dim if rules_at(release)["value_width"] == "own" else geometry.key_head_dim
    row = heads * (form.key.bytes(geometry.key_head_dim) + form.value.bytes(value))
    indexer = _indexer_width(layers)
    extra, said = 0, ""
    if indexer:  # MiniMax-M3: one key a token of the layers that choose, in the model's own type
        sparse = sum(any(isinstance(cache, IndexerCache) for cache in layer.caches()) for layer in layers)
        extra, said = sparse * indexer * 2, f" + {sparse} x {indexer} x 2 B of the indexers"
    size = row * count + extra
    formula = (
        f"{count} layers x {heads} kv heads x ({geometry.key_head_dim} + {value}) in {form.name}{said} = {size:,} B"
    )
    return Cell(sized_bytes=size, allocated_bytes=size, layers=count, formula=formula)


def _latent_cell(
    layers: tuple[Layer, ...],
    geometry: LatentCache,
    count: int,
    form: CacheFormat,
    *,
    release: Release,
    sparse_backend: str,
) -> Cell:
    width = geometry.kv_lora_rank + geometry.qk_rope_head_dim
    raw = form.key.bytes(width)
    indexer = _indexer_width(layers)
    if not indexer:
        size = raw * count
        formula = f"{count} layers x latent {geometry.kv_lora_rank} + {geometry.qk_rope_head_dim} in {form.name}"
        return Cell(sized_bytes=size, allocated_bytes=size, layers=count, formula=f"{formula} = {size:,} B")
    if raw not in (width, 2 * width):
        raise UnsupportedQuantization(
            f"--kv-cache-dtype {form.name}: sparse latent models take bfloat16 or fp8_e4m3", field="kv_cache_dtype"
        )
    rules = rules_at(release)
    row = raw
    if raw == width and sparse_backend not in rules["raw_sparse_rows"].split():
        row = geometry.kv_lora_rank + geometry.kv_lora_rank // SPARSE_SCALE_BLOCK * 4 + geometry.qk_rope_head_dim * 2
    own = sum(any(isinstance(cache, IndexerCache) for cache in layer.caches()) for layer in layers)
    indexed = own if rules["sparse_index_layers"] == "own" else count
    key = indexer + indexer // SPARSE_SCALE_BLOCK * 4
    allocated = row * count + key * indexed
    sized = (raw if rules["sparse_row"] == "raw" else row) * count + key * indexed
    formula = f"{count} layers x {row} B of latent + {indexed} x {key} B of indexer = {allocated:,} B"
    if sized != allocated:
        formula += f"; this release sizes the pool with the raw row, {sized:,} B"
    return Cell(sized_bytes=sized, allocated_bytes=allocated, layers=count, formula=formula)


def _indexer_width(layers: tuple[Layer, ...]) -> int:
    """Elements of an indexer's key; 0 without one."""
    for layer in layers:
        for cache in layer.caches():
            if isinstance(cache, IndexerCache):
                return cache.index_head_dim
    return 0
