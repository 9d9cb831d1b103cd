"""How a cache is stored: bytes of one token slot in one layer, on one GPU.

The format is the user's choice (`--kv-cache-dtype`) or the model's computing type; how the weights are stored plays
no part in it. The geometries are in `cache_formats.csv`, each with its source.

    keys and values   kv_heads x (vector(head_dim) + vector(value_head_dim))
    latent (MLA)      vector(kv_lora_rank + qk_rope_head_dim), once, on every GPU
    indexer           width + one fp32 scale per 128, whatever the format
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from planner.errors import UnsupportedQuantization
from planner.model.caches import CacheLayer, CompressedCache, CrossCache, IndexerCache, KeyValueCache, LatentCache

# DeepSeek-V4's 584-byte entry: 448 fp8 values, 64 rotary values in 16 bit, 7 scale bytes and one of padding.
_COMPRESSED_WIDTH = 512
_COMPRESSED_FP8_BYTES = 448 + 64 * 2 + 8
_INDEXER_SCALE_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Vector:
    """Storage of one key or value vector: whole blocks, and what each vector has besides.

    Args:
        block_elements, block_bytes: the smallest unit, scales included.
        extra_bytes: scale, zero point or norm of the vector.
    """

    block_elements: int
    block_bytes: int
    extra_bytes: int = 0

    def bytes(self, width: int) -> int:
        """Bytes of a vector of `width` elements."""
        return -(-width // self.block_elements) * self.block_bytes + self.extra_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """One way to store a cache.

    Args:
        name: as the engine spells it.
        key, value: how a head's vectors are stored.
        even: a key and its value together are padded to an even number of bytes (turboquant).
        latent: "vector" stores an MLA latent like a key; "fp8_ds_mla" and "nvfp4_ds_mla" are layouts of their own;
            "no": cannot store one.
        engine: whose name it is; "any" for plain types.
        first_version: the first engine version that has it ("": always had it).
        source, confidence: where the geometry was read, and how sure it is.
    """

    name: str
    key: Vector
    value: Vector
    even: bool = False
    latent: str = "vector"
    engine: str = "any"
    first_version: str = ""
    source: str = ""
    confidence: str = "high"

    @property
    def bits_per_element(self) -> float:
        """Bits of one element of a 128-wide head, keys and values averaged, scales included."""
        return (self.key.bytes(128) + self.value.bytes(128)) * 8 / 256

    def slot_bytes(self, cache: CacheLayer, kv_heads_local: int) -> int:
        """Bytes of one slot of a per-token cache in one layer on one GPU.

        Args:
            kv_heads_local: key-value heads on this GPU (a latent or an indexer ignores it).

        Raises:
            UnsupportedQuantization: this format cannot store that kind of cache.
        """
        if isinstance(cache, KeyValueCache | CrossCache):
            if self.latent.endswith("ds_mla"):
                raise self._cannot_store("keys and values per head")
            each = self.key.bytes(cache.key_head_dim) + self.value.bytes(cache.value_head_dim)
            return kv_heads_local * (each + each % 2 if self.even else each)
        if isinstance(cache, IndexerCache):
            return cache.index_head_dim + -(-cache.index_head_dim // _INDEXER_SCALE_BLOCK) * 4
        if isinstance(cache, LatentCache):
            return self._latent_bytes(cache)
        if isinstance(cache, CompressedCache):
            return cache.width * 4 if cache.dtype == "float32" else self._compressed_bytes(cache)
        raise self._cannot_store("a recurrent state")

    def _latent_bytes(self, cache: LatentCache) -> int:
        rank, rope = cache.kv_lora_rank, cache.qk_rope_head_dim
        if self.latent == "fp8_ds_mla":  # 512 + 512/128 x 4 + 64 x 2 = 656
            return rank + -(-rank // 128) * 4 + rope * 2
        if self.latent == "nvfp4_ds_mla":  # 512/2 + 512/16 + 64 = 352
            return rank // 2 + -(-rank // 16) + rope
        if self.latent != "vector":
            raise self._cannot_store("a latent (MLA) cache")
        return self.key.bytes(rank + rope)

    def _compressed_bytes(self, cache: CompressedCache) -> int:
        if self.latent == "fp8_ds_mla" and cache.width == _COMPRESSED_WIDTH:
            return _COMPRESSED_FP8_BYTES
        if self.latent != "vector":
            raise self._cannot_store(f"a compressed cache of width {cache.width}")
        return self.key.bytes(cache.width)

    def _cannot_store(self, what: str) -> UnsupportedQuantization:
        return UnsupportedQuantization(
            f"kv_cache_dtype {self.name} cannot store {what}; use auto or another kv_cache_dtype",
            field="kv_cache_dtype",
        )


def cache_format(name: str, model_dtype: str | None) -> CacheFormat:
    """The cache format of that name; "auto" is the type that the model computes in.

    Args:
        name: as the engine spells it ("auto", "fp8", "q8_0").
        model_dtype: "bfloat16", "float16" or "float32"; None counts as bfloat16.

    Raises:
        UnsupportedQuantization: no such format; lists those there are.
    """
    wanted = name.strip().lower()
    if wanted == "auto":
        wanted = model_dtype or "bfloat16"
    found = cache_formats().get(wanted)
    if found is None:
        known = ", ".join(["auto", *cache_formats()])
        raise UnsupportedQuantization(
            f"--kv-cache-dtype: unknown cache format {name!r}; one of {known}", field="kv_cache_dtype"
        )
    return found


@cache
def cache_formats() -> dict[str, CacheFormat]:
    """Every cache format, by name."""
    text = files("planner.memory").joinpath("cache_formats.csv").read_text("utf-8")
    return {row["name"]: _from_row(row) for row in csv.DictReader(text.splitlines())}


def _from_row(row: dict[str, str]) -> CacheFormat:
    block = int(row["block_elements"])
    return CacheFormat(
        name=row["name"],
        key=Vector(block, int(row["key_block_bytes"]), int(row["key_extra_bytes"])),
        value=Vector(block, int(row["value_block_bytes"]), int(row["value_extra_bytes"])),
        even=row["even"] == "yes",
        latent=row["latent"],
        engine=row["engine"],
        first_version=row["first_version"],
        source=row["source"],
        confidence=row["confidence"],
    )
