"""Ollama's plan: its rules for context, slots, batch and layers, and llama.cpp's arithmetic under them.

From 2026-05-29 a model runs in llama-server with --fit. From 2025-08 to then layers are packed from the last backwards
into what a card has free beyond a reserve and the graph; if not all fit, the output layer is dropped first. Before,
an estimate decided (`estimate.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any, Final

from planner.contract.inputs import check
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.llama_cpp.deployment import Deployment as LlamaDeployment
from planner.engines.llama_cpp.plan import LlamaPlan, plan_serving
from planner.engines.ollama.deployment import Deployment
from planner.engines.ollama.estimate import METAL_MINIMUM_BYTES, MINIMUM_BYTES, cache_bytes, graph_bytes
from planner.engines.ollama.releases import (
    LLAMA_SERVER,
    NEW_MEMORY,
    ONE_SLOT,
    day_of,
    default_batch,
    default_context,
)
from planner.model.model import Model
from planner.units import format_size

# model types that a release serves one request at a time (server/sched.go)
_ONE_AT_A_TIME: Final = (
    "mllama",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "lfm2",
    "lfm2_moe",
    "nemotron_h",
)


def plan_model(
    model: Model, deployment: Deployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> LlamaPlan:
    """The plan of one loaded model.

    Raises:
        UsageError: an input out of range.
        UnsupportedArchitecture: as llama.cpp's plan.
    """
    check(deployment)
    day = day_of(deployment.engine_version)
    base, said = _as_llama_cpp(model, deployment, day)
    plan = plan_serving(model, base, workload, notes=(*notes, *said), engine="ollama", outputs=_outputs(base, day))
    if day < LLAMA_SERVER and deployment.num_gpu is None:
        count, words = _packed(model, deployment, base, plan, day)
        if plan.run is not None and count <= plan.run.placement.layers:
            base = replace(base, n_gpu_layers=str(count))
            plan = plan_serving(
                model, base, workload, notes=(*notes, *said, words), engine="ollama", outputs=_outputs(base, day)
            )
    return replace(plan, deployment=deployment, engine_version=deployment.engine_version)


def _outputs(base: LlamaDeployment, day: date) -> int | None:
    """Rows of logits: llama-server's own; Ollama's runner asked for a whole batch."""
    return None if day >= LLAMA_SERVER else base.batch_size


def _as_llama_cpp(model: Model, deployment: Deployment, day: date) -> tuple[LlamaDeployment, tuple[str, ...]]:
    notes: list[str] = []
    slots = deployment.num_parallel or (4 if day < ONE_SLOT else 1)
    if slots > 1 and model.spec.model_type in _ONE_AT_A_TIME:
        slots = 1
        notes.append(f"{model.spec.model_type} is served one request at a time: OLLAMA_NUM_PARALLEL counts as 1")
    total = sum(card.total_memory_bytes for card in deployment.cards)
    length = deployment.num_ctx
    if length is None:
        length = min(default_context(day, total), model.longest_request)
        notes.append(f"num_ctx {length:,}: the default of this release on {format_size(total)} of VRAM")
    elif length > model.longest_request:
        notes.append(f"requested context size too large for model: {length:,} is cut to {model.longest_request:,}")
        length = model.longest_request
    kind, flash = deployment.kv_cache_type, deployment.flash_attention
    if kind != "f16" and not flash:
        kind = "f16"
        notes.append("OLLAMA_KV_CACHE_TYPE has no effect without OLLAMA_FLASH_ATTENTION=1: the cache is f16")
    batch = deployment.num_batch or default_batch(day, length * slots)
    layers = None if deployment.num_gpu in (None, -1) else str(deployment.num_gpu)
    settings: dict[str, Any] = {
        name: getattr(deployment, name)
        for name in ("gpu", "gpu_memory_bytes", "gpus", "host_memory_bytes", "quantization")
    }
    return (
        LlamaDeployment(
            **settings,
            already_used_bytes=deployment.already_used_bytes + deployment.gpu_overhead_bytes,
            engine_version=day.strftime("%Y-%m-%d") if day.day <= 28 else day.strftime("%Y-%m-28"),
            ctx_size=length * slots,
            parallel=slots,
            kv_unified=False,
            batch_size=batch,
            ubatch_size=batch,
            flash_attn="off" if flash is False or (flash is None and day < NEW_MEMORY) else "on",
            cache_type_k=kind,
            cache_type_v=kind,
            n_gpu_layers=layers,
            fit="on" if day >= LLAMA_SERVER else "off",
        ),
        tuple(notes),
    )


def _packed(model: Model, deployment: Deployment, base: LlamaDeployment, plan: LlamaPlan, day: date) -> tuple[int, str]:
    """(layers on cards without the output layer, or one more than there are where all fit; in words)."""
    run, buffers = plan.run, plan.buffers
    if run is None or buffers is None:
        return 1 << 20, ""
    layers = run.placement.layers
    reserve = METAL_MINIMUM_BYTES if run.backend == "metal" else MINIMUM_BYTES
    graph = max(buffers.compute[:-1], default=0)
    if day < NEW_MEMORY:
        graph = graph_bytes(model.spec, run.geometry.n_ctx, run.n_batch)
    rooms = [
        size - deployment.gpu_overhead_bytes - deployment.already_used_bytes - reserve - graph
        for size in _totals(deployment)
    ]
    sizes = list(_layer_bytes(model, base, plan, day))
    if _holds(sizes, rooms):
        return layers + 1, ""
    for count in range(layers, -1, -1):
        if _holds(sizes[layers - count : layers], rooms):
            return (
                count,
                f"{count} of {layers} layers fit beside a graph of {format_size(graph)} and {format_size(reserve)}",
            )
    return 0, "no layer fits"


def _totals(deployment: Deployment) -> list[int]:
    if deployment.gpus is None:
        return [deployment.total_bytes]
    return [card.total_memory_bytes for card in deployment.cards]


def _layer_bytes(model: Model, base: LlamaDeployment, plan: LlamaPlan, day: date) -> Iterator[int]:
    """Weights and cache of every layer, then the output layer."""
    run, buffers = plan.run, plan.buffers
    assert run is not None
    assert buffers is not None
    layers = run.placement.layers
    weights = [0] * (layers + 1)
    for tensor in run.tensors:
        if tensor.layer >= 0:
            weights[tensor.layer] += tensor.nbytes
    cache = buffers.caches
    if day < NEW_MEMORY:
        cache = cache_bytes(model.spec, run.geometry.n_ctx, base.cache_type_k)
    for index, size in enumerate(weights):
        yield size + (cache // layers if index < layers else 0)


def _holds(sizes: list[int], rooms: list[int]) -> bool:
    """Layers from the last backwards, a card at a time."""
    left, free = list(rooms), 0
    for size in reversed(sizes):
        while free < len(left) and left[free] < size:
            free += 1
        if free == len(left):
            return False
        left[free] -= size
    return True
