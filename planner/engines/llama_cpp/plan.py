"""The plan of a server that runs llama.cpp: what each card and the host hold, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.contract.component import Component, total
from planner.contract.inputs import check
from planner.contract.plan import Cache, Device, Load, ServingPlan, StartupError, Verdict, WorkloadPoint
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.llama_cpp.buffers import Buffers, buffers_of
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.fit import fitted
from planner.engines.llama_cpp.layout.cache import unsupported_caches
from planner.engines.llama_cpp.layout.devices import card_devices, card_totals, host_device
from planner.engines.llama_cpp.layout.outside import context_of
from planner.engines.llama_cpp.resolve import Refused, Run, resolve
from planner.engines.llama_cpp.tables.options import not_known
from planner.engines.llama_cpp.work import work_of_run
from planner.errors import UnsupportedArchitecture, UsageError
from planner.hardware.gpus import Gpu
from planner.memory.work import Work
from planner.model.model import Model
from planner.units import format_size

ENGINE: Final = "llama.cpp"
_CACHE_RAM_MIB: Final = 8192  # common.h cache_ram_mib


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LlamaPlan(ServingPlan):
    """A plan with the engine's buffers; `run` is None where it would not start."""

    run: Run | None
    buffers: Buffers | None

    @property
    def work(self) -> Work | None:
        """What a step reads and multiplies; None where the host does a part of it."""
        if self.run is None:
            return None
        return work_of_run(self.model, self.run, self.deployment.quantization)


def plan_serving(
    model: Model,
    deployment: Deployment,
    workload: Workload = ONE_REQUEST,
    *,
    notes: tuple[str, ...] = (),
    outputs: int | None = None,
    engine: str = ENGINE,
) -> LlamaPlan:
    """Plan one server.

    Raises:
        UnsupportedArchitecture: caches or a graph that are not known here.
        UsageError: an input out of range or without sense.
    """
    check(deployment)
    cards = deployment.cards
    if not cards:
        raise UsageError("no card: pass --gpu NAME or --gpu-memory 24GiB", field="gpu")
    reason = unsupported_caches(model.spec)
    if reason:
        raise UnsupportedArchitecture(f"--engine {engine}: {reason}", field="model")
    try:
        run = resolve(model, deployment, outputs=outputs)
    except Refused as error:
        return _refused(model, deployment, workload, cards, str(error), notes, engine)
    totals = card_totals(deployment, cards)
    contexts = [context_of(card, run.backend) for card in cards[: run.placement.devices]]
    said: tuple[str, ...] = ()
    if run.release.has("fit") and deployment.fit != "off":
        free = tuple(
            size - deployment.already_used_bytes - part.best for size, part in zip(totals, contexts, strict=False)
        )
        found = fitted(model, deployment, run, free)
        run, buffers, said = found.run, found.buffers, found.notes
    else:
        buffers = buffers_of(model, run)
    return _judged(model, deployment, workload, cards, run, buffers, contexts, (*notes, *said), engine)


def _judged(
    model: Model,
    deployment: Deployment,
    workload: Workload,
    cards: tuple[Gpu, ...],
    run: Run,
    buffers: Buffers,
    contexts: list[Component],
    notes: tuple[str, ...],
    engine: str,
) -> LlamaPlan:
    devices, unknown = card_devices(model, deployment, cards, run, buffers, contexts)
    host = host_device(model, deployment, run, buffers, unified=run.backend == "metal")
    devices.sort(key=lambda device: device.free_bytes)
    judged = [*devices, host] if host.total_bytes else devices
    verdict: Verdict = "fits"
    for device in judged:
        if total(device.components, "best") + device.cache_bytes > device.total_bytes:
            verdict = "does_not_fit"
        elif total(device.components, "high") + device.cache_bytes > device.total_bytes and verdict == "fits":
            verdict = "tight"
    shortfall = max(0, *(-device.free_bytes for device in judged))
    positions = model.longest_request
    context = run.geometry.context_of_slot
    length = min(context, positions)
    wanted = workload.admission[1] if workload.admission else length
    held = min(run.geometry.slots, run.geometry.n_ctx // max(1, wanted)) if wanted <= context else 0
    error = None
    if verdict == "does_not_fit":
        worst = judged[0] if judged[0].free_bytes < 0 else host
        error = StartupError(
            kind="weights" if worst.kind == "gpu" else "host_memory",
            message=f"cudaMalloc failed: out of memory: {worst.name} is short by {format_size(shortfall)}"
            if worst.kind == "gpu"
            else f"the host is short by {format_size(-host.free_bytes)}",
        )
    elif held < workload.concurrency:
        verdict, error = "does_not_fit", _too_many(run, workload, wanted, held)
    if unknown and verdict in ("fits", "tight"):
        verdict = "unknown"
    free = min(device.free_bytes for device in devices) if devices else host.free_bytes
    longest = min(
        positions, max(0, context + free // max(1, _bytes_per_token(run, buffers) + _mask_slope(run))) // 256 * 256
    )
    return LlamaPlan(
        model=model,
        deployment=deployment,
        workload=workload,
        engine=engine,
        engine_version=deployment.engine_version,
        resolved=run,
        devices=(*devices, host),
        cache=_cache(run, buffers, length, longest),
        max_model_len=length,
        positions=positions,
        points=tuple(_points(workload, run, length)),
        load=Load(gpu_peak_bytes=max(buffers.model[:-1], default=0), host_bytes=buffers.model[-1]),
        verdict=verdict,
        shortfall_bytes=shortfall if verdict == "does_not_fit" else 0,
        startup_error=error,
        unknown=tuple(unknown) if verdict == "unknown" else (),
        notes=(*notes, *_notes(model, deployment, run, context), *run.notes, *model.spec.notes, *model.notes),
        run=run,
        buffers=buffers,
    )


def _cache(run: Run, buffers: Buffers, length: int, longest: int) -> Cache:
    slots = run.geometry.slots
    return Cache(
        bytes_per_token=_bytes_per_token(run, buffers),
        bytes_per_sequence=buffers.caches // (slots if run.geometry.streams > 1 else 1),
        window_bytes_per_sequence=sum(buffers.window) // slots,
        state_bytes_per_sequence=sum(buffers.state) // slots,
        reserved_bytes=buffers.caches,
        tokens=run.geometry.n_ctx,
        max_concurrency=float(min(slots, run.geometry.n_ctx // max(1, length))),
        request_bytes=0,
        longest=longest,
    )


def _too_many(run: Run, workload: Workload, wanted: int, held: int) -> StartupError:
    slots = run.geometry.slots
    if slots < workload.concurrency:
        text = f"{slots} slots serve {workload.concurrency} requests at once only with -np {workload.concurrency}"
    else:
        text = (
            f"{workload.concurrency} requests of {wanted:,} tokens do not fit in a context of"
            f" {run.geometry.n_ctx:,} tokens ({held} do); raise -c"
        )
    return StartupError(kind="request_too_long", message=text)


def _bytes_per_token(run: Run, buffers: Buffers) -> int:
    return sum(buffers.full) // max(1, run.geometry.cells * run.geometry.streams)


def _mask_slope(run: Run) -> int:
    """Bytes of compute buffer that one more cell takes."""
    batch = run.batch()
    copies = 4 if run.placement.pipelined else 1
    return batch.tokens * (batch.mask_item + 2 * batch.cast_mask) * copies


def _points(workload: Workload, run: Run, length: int) -> Iterator[WorkloadPoint]:
    points = workload.points or [("max_model_len", length)]
    for name, tokens in points:
        fits = min(run.geometry.slots, run.geometry.n_ctx // max(1, tokens)) if tokens <= length else 0
        yield WorkloadPoint(at=name, tokens_per_request=tokens, concurrency=fits)


def _notes(model: Model, deployment: Deployment, run: Run, context: int) -> Iterator[str]:
    if any(tensor.name.startswith("blk.") for tensor in model.stored):
        yield "a .gguf file is planned with llama.cpp unless --engine says otherwise"
    if context > model.longest_request:
        yield (
            f"n_ctx_seq ({context}) > n_ctx_train ({model.longest_request}) -- possible training context overflow:"
            " the engine reserves it, and serves no longer request than the model was made for"
        )
    for name in not_known(deployment.passed):
        yield f"{name}: not known whether memory depends on it"
    if not deployment.host_memory_bytes:
        yield "RAM is not judged: state it with --host-memory"
    if deployment.mlock or not deployment.mmap:
        yield "weights in host memory are real copies, not pages of the file"
    if run.placement.pipelined:
        yield "pipeline parallelism: four copies of every input on every card; if they do not fit it loads without"
    if run.backend == "vulkan":
        yield "Vulkan: the same graph; 10 to 165 MiB beyond its buffers were seen"
    if deployment.cache_ram != 0 and run.release.has("fit"):
        limit = deployment.cache_ram if deployment.cache_ram is not None else _CACHE_RAM_MIB
        amount = "any amount" if limit < 0 else f"{limit:,} MiB"
        yield f"prompts that left their slot may take {amount} of RAM (--cache-ram)"


def _refused(
    model: Model,
    deployment: Deployment,
    workload: Workload,
    cards: tuple[Gpu, ...],
    message: str,
    notes: tuple[str, ...],
    engine: str,
) -> LlamaPlan:
    devices = tuple(
        Device(
            name=card.name,
            kind="gpu",
            total_bytes=card.total_memory_bytes,
            components=(),
            cache_bytes=0,
            free_bytes=card.total_memory_bytes,
        )
        for card in cards
    )
    return LlamaPlan(
        model=model,
        deployment=deployment,
        workload=workload,
        engine=engine,
        engine_version=deployment.engine_version,
        resolved=None,
        devices=devices,
        cache=Cache(
            bytes_per_token=0,
            bytes_per_sequence=0,
            reserved_bytes=0,
            tokens=None,
            max_concurrency=0.0,
            request_bytes=0,
            longest=0,
        ),
        max_model_len=0,
        positions=model.longest_request,
        points=(),
        load=Load(gpu_peak_bytes=0, host_bytes=0),
        verdict="refused",
        shortfall_bytes=0,
        startup_error=StartupError(kind="refused", message=message, refused=True),
        unknown=(),
        notes=notes,
        run=None,
        buffers=None,
    )
