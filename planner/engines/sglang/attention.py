"""Which attention kernels SGLang runs, and the cache type, page and windows that they ask for."""

from __future__ import annotations

from typing import Final

from planner.engines.sglang.deployment import Deployment
from planner.engines.sglang.tables.releases import Release, has_trait, rules_at
from planner.errors import UsageError
from planner.hardware.gpus import Gpu
from planner.memory.cache.formats import CacheFormat, cache_format
from planner.model.caches import KeyValueCache, LatentCache
from planner.model.kinds.latent import LatentAttention
from planner.model.model import Model

_CACHE_DTYPES: Final = ("auto", "bfloat16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "mxfp8")
_SPARSE_PAGE: Final = 64
_COMPRESSED_PAGE: Final = 256
_AITER_HEADS: Final = (16, 128)  # of MLA, on one card
# page sizes that a kernel asks for (server_args.py _handle_attention_backend_compatibility)
_BACKEND_PAGES: Final = {"flashmla": 64, "cutlass_mla": 128, "trtllm_mla": 64, "trtllm_mha": 64, "fa4": 128}


def default_backend(model: Model, gpu: Gpu, tensor_parallel_size: int) -> str:
    """The attention kernels where memory depends on them (server_args.py _get_default_attn_backend); "" otherwise."""
    if gpu.vendor == "AMD" and gpu.architecture.startswith("CDNA") and not model.has_sparse_latent_cache:
        heads = next(
            (
                mixer.num_attention_heads
                for layer in model.spec.layers
                for mixer in layer.mixers
                if isinstance(mixer, LatentAttention)
            ),
            None,
        )
        return "aiter" if heads is None or heads // tensor_parallel_size in _AITER_HEADS else "triton"
    return ""


def is_compressed(model: Model) -> bool:
    """DeepSeek-V4, whose sparse cache is compressed."""
    return model.spec.model_type.startswith("deepseek_v4")


def settled_cache_format(asked: Deployment, dtype: str, sparse: bool, gpu: Gpu) -> CacheFormat:
    """The cache type; "auto" of sparse attention is fp8 on Blackwell.

    Raises:
        UsageError: no cache type of SGLang.
    """
    name = asked.kv_cache_dtype.strip().lower()
    if name not in _CACHE_DTYPES:
        raise UsageError(
            f"--kv-cache-dtype {asked.kv_cache_dtype[:30]!r} is no cache type of SGLang; expected "
            + ", ".join(_CACHE_DTYPES),
            field="kv_cache_dtype",
        )
    if name == "auto" and sparse:
        name = "fp8_e4m3" if (gpu.capability or (0, 0))[0] >= 10 else "bfloat16"
    return cache_format("bfloat16" if name == "bf16" else name, dtype)


def page_size(model: Model, asked: Deployment, backend: str, sparse: bool) -> int:
    """Tokens of a page: as given, or as the kernels want it."""
    if asked.page_size is not None:
        return asked.page_size
    if is_compressed(model):
        return _COMPRESSED_PAGE
    return _SPARSE_PAGE if sparse else _BACKEND_PAGES.get(backend, 1)


def splits_windows(model: Model, asked: Deployment, release: Release, gpu: Gpu) -> bool:
    """Windowed layers have a pool of their own."""
    if asked.disable_hybrid_swa_memory or rules_at(release)["windows"] == "none":
        return False
    blackwell = (gpu.capability or (0, 0))[0] == 10 and asked.attention_backend in (None, "trtllm_mha")
    if blackwell and has_trait("whole_windows_on_blackwell", model.spec.architecture, release):
        return False
    bounded = any(isinstance(cache, KeyValueCache | LatentCache) and cache.bounded for cache in model.caches)
    return bounded and has_trait("windows", model.spec.architecture, release)


def sparse_backend(asked: Deployment, release: Release, gpu: Gpu) -> str:
    """The kernels of sparse attention on this card."""
    name = asked.sparse_attention_backend
    if gpu.vendor == "AMD":
        return f"hip/{name or 'tilelang'}"
    blackwell = (gpu.capability or (0, 0))[0] >= 10 and rules_at(release)["sparse_kernels"] == "trtllm_blackwell"
    return name or ("trtllm" if blackwell else "flashmla_kv")


def extra_buffer(model: Model, asked: Deployment, release: Release) -> bool:
    """Prefixes keep recurrent states in slots of their own."""
    if asked.disable_radix_cache:
        return False
    if asked.mamba_radix_cache_strategy != "auto":
        return asked.mamba_radix_cache_strategy.startswith("extra_buffer")
    if rules_at(release)["extra_state_buffer"] != "listed" or asked.disable_overlap_schedule:
        return False
    return has_trait("extra_buffer", model.spec.architecture, release)
