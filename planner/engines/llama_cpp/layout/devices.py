"""What lies on each card and on the host, by the engine's own buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from planner.contract.assumed import labelled
from planner.contract.component import Component, exact, total
from planner.contract.plan import Device
from planner.engines.llama_cpp.beside import beside_model
from planner.engines.llama_cpp.buffers import Buffers
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.layout.outside import late_copies_bytes
from planner.engines.llama_cpp.resolve import Run
from planner.hardware.gpus import Gpu
from planner.model.model import Model
from planner.units import format_size

_SOURCE: Final = "llama.cpp v0.5.0"


def card_totals(deployment: Deployment, cards: tuple[Gpu, ...]) -> tuple[int, ...]:
    if len(cards) == 1 or deployment.gpus is None:
        return (deployment.total_bytes,) * len(cards)
    return tuple(card.total_memory_bytes for card in cards)


def card_devices(
    model: Model,
    deployment: Deployment,
    cards: tuple[Gpu, ...],
    run: Run,
    buffers: Buffers,
    contexts: list[Component],
) -> tuple[list[Device], list[str]]:
    """What lies on each card, and what of it is not known."""
    totals = card_totals(deployment, cards)
    unknown: list[str] = []
    devices = []
    for index in range(run.placement.devices):
        parts = list(_parts(model, run, buffers, index))
        if index == 0:
            beside, missing = beside_model(model, deployment, run)
            parts += beside
            unknown += missing
        parts.append(contexts[index])
        if deployment.already_used_bytes:
            parts.append(exact("other_processes", deployment.already_used_bytes, "stated", "--already-used"))
        needed = total(parts, "best") + buffers.cache(index)
        name = cards[index].name if len(cards) == 1 else f"{cards[index].name} #{index}"
        devices.append(
            Device(
                name=name,
                kind="gpu",
                total_bytes=totals[index],
                components=labelled(parts, model.spec.assumed),
                cache_bytes=buffers.cache(index),
                free_bytes=totals[index] - needed,
            )
        )
    return devices, unknown


def _parts(model: Model, run: Run, buffers: Buffers, device: int) -> Iterator[Component]:
    placement = run.placement
    layers = sum(1 for layer in range(placement.layers + 1) if placement.device_of(layer) == device)
    yield exact(
        "weights",
        buffers.model[device],
        f"{layers} of {placement.layers + 1} layers (the output layer is one): {format_size(buffers.model[device])}",
        f"{_SOURCE} src/llama-model.cpp load_tensors; tensors as the file or its mix stores them",
    )
    batch = run.batch()
    yield Component(
        name="compute_buffer",
        low=buffers.compute[device],
        best=buffers.compute[device],
        high=buffers.compute[device],
        evidence="derived",
        formula=f"the graph of {batch.tokens} tokens on {batch.cells:,} cells with {batch.outputs} rows of logits, run"
        " through ggml's allocator",
        source=f"{_SOURCE} src/llama-graph.cpp, src/models; ggml-alloc.c",
    )
    late = late_copies_bytes(model, run)
    if late:
        yield Component(
            name="cache_copies",
            low=0,
            best=late,
            high=late,
            evidence="derived",
            formula="F16 copies of a quantised cache's widest layer, from the first long prompt on",
            source="llama.cpp before 2026-07 ggml-cuda/fattn-common.cuh",
        )


def host_device(model: Model, deployment: Deployment, run: Run, buffers: Buffers, *, unified: bool) -> Device:
    """The host: weights that stay there, mapped or copied, its caches and buffers."""
    last = run.placement.devices
    copied = not deployment.mmap or deployment.mlock
    parts = [
        exact(
            "weights",
            buffers.model[last],
            ("read into memory" if copied else "mapped: pages of the file that the system may drop and read again"),
            f"{_SOURCE} src/llama-model.cpp",
        ),
        Component(
            name="compute_buffer",
            low=buffers.compute[last],
            best=buffers.compute[last],
            high=buffers.compute[last],
            evidence="derived",
            formula="masks, embeddings and what is computed on the host; pinned",
            source=f"{_SOURCE} ggml-alloc.c",
        ),
        exact(
            "output_buffer",
            buffers.output,
            f"vocabulary {model.spec.vocab_size:,} x {max(run.geometry.slots, 1)} slots x 4",
            f"{_SOURCE} src/llama-context.cpp",
        ),
    ]
    size = deployment.host_memory_bytes or 0
    needed = total(parts, "best") + buffers.cache(last)
    return Device(
        name="host",
        kind="host",
        total_bytes=size,
        components=labelled(parts, model.spec.assumed),
        cache_bytes=buffers.cache(last),
        free_bytes=size - needed if size else 0,
    )
