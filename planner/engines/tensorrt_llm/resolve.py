"""A deployment with TensorRT-LLM's defaults of its release applied.

Source: tensorrt_llm/commands/serve.py, builder.py BuildConfig, llmapi/llm_args.py KvCacheConfig (0.12 to 1.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.contract.runs_on import check_card
from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.tables.releases import Release, parse_release, rules_at
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, unnamed_gpu
from planner.memory.cache.formats import CacheFormat, cache_format
from planner.model.model import Model

_CACHE_DTYPES: Final = ("auto", "fp8", "nvfp4", "bfloat16", "float16", "float32")
_DTYPES: Final = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A deployment with the defaults of its release."""

    asked: Deployment
    release: Release
    gpu: Gpu
    backend: str
    dtype: str
    cache_format: CacheFormat
    tokens_per_block: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    attention_parallel_size: int


# the support matrix begins with Ampere from 1.0 on, before it with Volta
_FIRST_WITHOUT_VOLTA, _OLDEST_SOURCE = (1, 0), "TensorRT-LLM docs/source/reference/support-matrix.md"


def resolve(model: Model, asked: Deployment) -> Resolved:
    """Apply the defaults.

    Raises:
        UsageError: a card that it does not run on; a release, type or back end that is not known.
    """
    release = parse_release(asked.engine_version)
    oldest = (8, 0) if release >= _FIRST_WITHOUT_VOLTA else (7, 0)
    check_card("TensorRT-LLM", asked.gpu, vendors=("NVIDIA",), oldest=oldest, source=_OLDEST_SOURCE)
    rules = rules_at(release)
    backend = asked.backend or rules["backend"]
    if backend == "_autodeploy":
        raise UsageError("--backend _autodeploy is not described; plan with pytorch or tensorrt", field="backend")
    dtype = asked.dtype if asked.dtype != "auto" else model.spec.dtype or "bfloat16"
    dtype = "float16" if asked.dtype == "auto" and dtype == "float32" else dtype
    if dtype not in _DTYPES:
        raise UsageError(f"--dtype {asked.dtype[:30]}: expected auto, {', '.join(_DTYPES)}", field="dtype")
    name = str(asked.cache_setting("dtype") or asked.kv_cache_dtype).lower()
    if name not in _CACHE_DTYPES:
        raise UsageError(f"--kv_cache_dtype {name[:30]}: expected {', '.join(_CACHE_DTYPES)}", field="kv_cache_dtype")
    block = asked.cache_setting("tokens_per_block")
    return Resolved(
        asked=asked,
        release=release,
        gpu=asked.gpu or unnamed_gpu(asked.total_bytes),
        backend=backend,
        dtype=dtype,
        cache_format=cache_format(name, dtype),
        tokens_per_block=int(block or rules["tokens_per_block"]),
        max_batch_size=asked.max_batch_size or int(rules["max_batch_size"]),
        max_num_tokens=asked.max_num_tokens or int(rules["max_num_tokens"]),
        max_seq_len=asked.max_seq_len or model.longest_request,
        attention_parallel_size=1 if asked.enable_attention_dp else asked.tp_size,
    )
