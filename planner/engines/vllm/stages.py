"""The parts of a serving plan that depend on few inputs: parallelism, stage budgets, cache layout, rest of the card.

What is expensive is kept in the model's memo, so that another plan of the same model only does arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from planner.contract.component import SIDES, Side
from planner.contract.component import total as sum_of
from planner.engines.vllm.budget.budget import StageBudget, stage_budget
from planner.engines.vllm.budget.runner import uses_v2_runner
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.pool.cache_type import cache_type
from planner.engines.vllm.pool.layout import Pool, PoolOptions, build_pool
from planner.engines.vllm.pool.stage_caches import stage_caches
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.errors import UnsupportedQuantization, UsageError
from planner.memory.cache.formats import CacheFormat, cache_format
from planner.memory.cache.kv_cache import LayerCache
from planner.memory.parallel.sharding import Parallelism, divides, stage_layer_counts, stage_slices
from planner.memory.quantisation import WeightScheme
from planner.model.model import Model
from planner.model.tensors import distinct_tensors

_LARGEST_TENSOR_PARALLEL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What lives in the part of the card that the fraction leaves, at best estimates, in bytes."""

    driver_total_bytes: int
    context_bytes: int
    cuda_graph_bytes: int
    post_profile_bytes: int
    other_bytes: int
    free_bytes: int


def utilization_of(resolved: Resolved) -> float:
    """The fraction after the safety margin, to the four digits that a command line shows, rounded down."""
    margin = resolved.asked.safety_margin_bytes
    if not margin:
        return resolved.gpu_memory_utilization
    lowered = resolved.gpu_memory_utilization - margin / resolved.gpu_memory_bytes
    if lowered <= 0:
        raise UsageError("--safety-margin leaves nothing of the card", field="safety_margin")
    return math.floor(lowered * 10_000) / 10_000


def parallelism_of(model: Model, deployment: Deployment) -> Parallelism:
    parallelism = Parallelism(
        tensor_parallel_size=deployment.tensor_parallel_size,
        pipeline_parallel_size=deployment.pipeline_parallel_size,
        data_parallel_size=deployment.data_parallel_size,
        enable_expert_parallel=deployment.enable_expert_parallel,
    )
    absent = deployment.language_model_only or deployment.limit_images == 0
    towers = not absent and deployment.mm_encoder_tp_mode == "weights"
    key = ("divides", parallelism, towers)
    if key not in model.memo:
        model.memo[key] = _refusal(model, parallelism, towers=towers) or ""
    reason = model.memo[key]
    if reason:
        works = ", ".join(str(size) for size in tensor_parallel_sizes(model, towers=towers))
        if towers and _refusal(model, parallelism, towers=False) is None:
            works += "; or keep the towers whole with --mm-encoder-tp-mode data"
        raise UsageError(
            f"--tensor-parallel-size {deployment.tensor_parallel_size}: {reason}; sizes that work: {works}",
            field="tensor_parallel_size",
        )
    return parallelism


def _refusal(model: Model, parallelism: Parallelism, *, towers: bool) -> str | None:
    key = ("distinct tensors", towers)
    found = model.memo.get(key)
    if not isinstance(found, tuple):
        found = model.memo[key] = tuple(distinct_tensors(model.spec, towers=towers))
    return divides(found, parallelism)


def tensor_parallel_sizes(
    model: Model, *, largest: int = _LARGEST_TENSOR_PARALLEL, towers: bool = True
) -> tuple[int, ...]:
    """The tensor-parallel sizes up to `largest` that every tensor of the model divides by."""
    key = ("tensor parallel sizes", largest, towers)
    found = model.memo.get(key)
    if not isinstance(found, tuple):
        found = tuple(
            size
            for size in range(1, largest + 1)
            if _refusal(model, Parallelism(tensor_parallel_size=size), towers=towers) is None
        )
        model.memo[key] = found
    return found


def _layers_of_stages(model: Model, resolved: Resolved) -> tuple[int, ...]:
    """Layers of every stage: as VLLM_PP_LAYER_PARTITION says, else as the release shares them out.

    Raises:
        UsageError: a partition of another number of stages or of layers.
    """
    stages, total = resolved.asked.pipeline_parallel_size, len(model.spec.layers)
    stated = resolved.asked.pipeline_layer_partition
    if stated is None:
        return stage_layer_counts(total, stages, remainder_to_last=resolved.profile.remainder_to_last)
    if len(stated) != stages or sum(stated) != total:
        raise UsageError(
            f"VLLM_PP_LAYER_PARTITION={','.join(map(str, stated))} has {len(stated)} stages and {sum(stated)} layers;"
            f" --pipeline-parallel-size is {stages} and the model has {total} layers",
            field="pipeline_layer_partition",
        )
    return stated


def stages_of(
    model: Model, resolved: Resolved, scheme: WeightScheme, parallelism: Parallelism
) -> tuple[StageBudget, ...]:
    counts = _layers_of_stages(model, resolved)
    utilization = utilization_of(resolved)
    slices = stage_slices(counts)
    return tuple(
        stage_budget(
            model,
            resolved,
            scheme,
            parallelism,
            stage=index,
            layers=layers,
            stages=len(slices),
            utilization=utilization,
        )
        for index, layers in enumerate(slices)
    )


# What people type for the plain types, beside vLLM's own spelling.
_CACHE_ALIASES: Final = {"bf16": "bfloat16", "fp16": "float16", "half": "float16"}


def cache_format_of(
    model: Model, name: str, dtype: str, *, version: str | None = None, capability: tuple[int, int] | None = None
) -> CacheFormat:
    """The cache format that vLLM takes for this name.

    Args:
        version: the vLLM version, which must have the format (None: not asked).

    Source: vLLM 0.24.0 `models/deepseek_v4/attention.py` _resolve_dsv4_kv_cache_dtype; `config/cache.py` CacheDType.

    Raises:
        UnsupportedQuantization: no such format, or none that vLLM, or this version of it, has.
    """
    given = _CACHE_ALIASES.get(name, name)
    taken = cache_type(model, given, parse_version(version) if version else (), capability)
    form = cache_format(taken, dtype)
    if version is None or taken != given:
        return form
    reason = ""
    if form.engine not in ("any", "vllm"):
        reason = f"is a cache of {form.engine}"
    elif form.name == "float32" and dtype != "float32":
        reason = "comes with --dtype float32 only"
    elif form.engine == "vllm" and parse_version(version) < _first_version(form):
        reason = f"came with {form.first_version}"
    if reason:
        raise UnsupportedQuantization(
            f"--kv-cache-dtype {name}: vLLM {version} has none such; it {reason}", field="kv_cache_dtype"
        )
    return form


def form_of(model: Model, resolved: Resolved) -> CacheFormat:
    """The cache format of this deployment.

    Raises:
        UnsupportedQuantization: as `cache_format_of`.
    """
    asked = resolved.asked
    capability = asked.gpu.capability if asked.gpu else None
    return cache_format_of(
        model, asked.kv_cache_dtype, resolved.dtype, version=resolved.profile.version, capability=capability
    )


def _first_version(form: CacheFormat) -> tuple[int, ...]:
    return tuple(int(part) for part in form.first_version.split(".")) if form.first_version else ()


def _batches_in_flight(model: Model, resolved: Resolved) -> int:
    """Batches scheduled and not settled; windows keep the tokens of each (config/vllm.py max_concurrent_batches)."""
    stages = resolved.asked.pipeline_parallel_size
    if not resolved.profile.windows_in_flight:
        return 1
    if uses_v2_runner(model, resolved):
        return stages + 1
    return 2 if stages == 1 else stages


def _alignment(model: Model, resolved: Resolved) -> int:
    """Tokens that a hybrid model's attention block is a multiple of.

    Source: vLLM 0.12.0 to 0.19.0 `models/config.py`, 0.24.0 and 0.28.0 `platforms/interface.py`.
    """
    rule, latent = resolved.profile.hybrid_alignment, model.has_latent_cache
    if rule == "fixed":
        return 64 if latent else 16
    return max(resolved.block_size, 128 if latent and rule == "block128" else 16)


def pool_of(model: Model, resolved: Resolved, form: CacheFormat, layers: slice) -> tuple[Pool, tuple[LayerCache, ...]]:
    asked = resolved.asked
    options = PoolOptions(
        block_size=resolved.block_size,
        max_model_len=resolved.max_model_len,
        tokens_in_flight=resolved.max_num_batched_tokens * _batches_in_flight(model, resolved),
        hybrid_manager=resolved.hybrid_manager,
        state_mode=resolved.state_mode,
        speculative_tokens=asked.proposed_tokens,
        context_parallel_size=asked.decode_context_parallel_size,
        attention_alignment=_alignment(model, resolved),
    )
    key = (
        "pool",
        form,
        layers.start,
        layers.stop,
        asked.tensor_parallel_size,
        options,
        resolved.profile,
        resolved.dtype,
        asked.mamba_ssm_cache_dtype,
        asked.speculative_config,
    )
    found = model.memo.get(key)
    if isinstance(found, tuple):
        return found
    caches = stage_caches(model, resolved, form, layers)
    result = (build_pool(caches, resolved.profile, options), caches)
    model.memo[key] = result
    return result


def outside_of(resolved: Resolved, stage: StageBudget, *, fixed: int | None = None) -> tuple[Outside, dict[Side, int]]:
    """What the fraction leaves, less what lives there; with a KV size stated (`fixed`), what the whole card leaves."""
    total = resolved.gpu_memory_bytes
    left = {}
    for side in SIDES:
        held = stage.requested_bytes
        if fixed is not None:
            held = fixed + sum_of(stage.inside, side)
        left[side] = total - held - sum_of(stage.outside, side)
    best = {component.name: component.best for component in stage.outside}
    outside = Outside(
        driver_total_bytes=total,
        context_bytes=best.get("context", 0),
        cuda_graph_bytes=best.get("cuda_graphs", 0),
        post_profile_bytes=best.get("post_profile", 0),
        other_bytes=best.get("nccl_outside", 0) + best.get("other_processes", 0),
        free_bytes=left["best"],
    )
    return outside, left
