"""What a plan prints beside what every plan has: the engine's own load lines, what fits, and what it costs in speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.contract.inputs import echo
from planner.contract.section import Breakdown, Section, default_section
from planner.units import MIB

if TYPE_CHECKING:
    from planner.engines.llama_cpp.buffers import Buffers
    from planner.engines.llama_cpp.plan import LlamaPlan
    from planner.engines.llama_cpp.resolve import Run

_PREFIX: Final = {"cuda": "CUDA", "rocm": "ROCm", "metal": "MTL", "vulkan": "Vulkan"}
# Assumed where nothing better is known: dual-channel DDR5-5600, two thirds of its 89.6 GB/s.
HOST_BANDWIDTH: Final = 60_000_000_000


def section(plan: LlamaPlan) -> Section:
    """The account of one plan."""
    run, buffers = plan.run, plan.buffers
    if run is None or buffers is None:
        message = plan.startup_error.message if plan.startup_error else ""
        return default_section(plan, headline=message, lines=(), inputs=echo(plan.deployment))
    decided: dict[str, object] = {
        "engine": plan.engine,
        "ctx_size": run.geometry.n_ctx,
        "n_gpu_layers": run.placement.offloaded,
        "parallel": run.geometry.slots,
        "kv_unified": run.geometry.streams == 1,
        "batch_size": run.n_batch,
        "ubatch_size": run.n_ubatch,
        "flash_attn": "on" if run.flash_attention else "off",
        "n_cpu_moe": run.placement.experts_on_host,
        "n_outputs_max": run.geometry.outputs,
    }
    layers = run.placement.layers + 1
    fullest = plan.devices[0]
    headline = (
        f"{run.placement.offloaded}/{layers} layers on cards, context {run.geometry.n_ctx:,} in"
        f" {run.geometry.slots} slot{'s' if run.geometry.slots > 1 else ''},"
        f" {fullest.free_bytes / 2**30:.2f} GiB free on the fullest"
    )
    lines = (*printed_lines(run, buffers), *_speed(plan, run, buffers))
    extra: dict[str, object] = {
        "buffers": {
            name: {
                "model": buffers.model[index],
                "full_cache": buffers.full[index],
                "window_cache": buffers.window[index],
                "state": buffers.state[index],
                "compute": buffers.compute[index],
            }
            for index, name in enumerate(device_names(run))
        }
    }
    told = default_section(plan, headline=headline, inputs=echo(plan.deployment) | decided, extra=extra)
    return replace(
        told,
        lines=(*told.lines, *lines),
        breakdowns=tuple(
            _without_total(one) if one.title == "host" and not plan.devices[-1].total_bytes else one
            for one in told.breakdowns
        ),
    )


def _without_total(breakdown: Breakdown) -> Breakdown:
    """The host's rows where nobody said how much RAM there is."""
    return replace(breakdown, rows=tuple(row for row in breakdown.rows if row.label not in ("total", "left")))


def device_names(run: Run) -> tuple[str, ...]:
    """As the engine prints them, the host last."""
    prefix = _PREFIX[run.backend]
    return (*(f"{prefix}{index}" for index in range(run.placement.devices)), f"{prefix}_Host")


def printed_lines(run: Run, buffers: Buffers) -> Iterator[str]:
    """The engine's load lines with these sizes."""
    names = device_names(run)
    for index, name in enumerate(names):
        host = index == len(names) - 1
        if buffers.model[index]:
            shown = "CPU_Mapped" if host else name
            yield f"load_tensors: {shown} model buffer size = {buffers.model[index] / MIB:.2f} MiB"
    for index, name in enumerate(names):
        for kind, sizes in (
            ("KV buffer", buffers.full),
            ("KV buffer (SWA)", buffers.window),
            ("RS buffer", buffers.state),
        ):
            if sizes[index]:
                shown = "CPU" if index == len(names) - 1 else name
                yield f"{shown} {kind} size = {sizes[index] / MIB:.2f} MiB"
    for index, name in enumerate(names):
        yield f"{name} compute buffer size = {buffers.compute[index] / MIB:.2f} MiB"
    yield f"{names[-1]} output buffer size = {buffers.output / MIB:.2f} MiB"


def _speed(plan: LlamaPlan, run: Run, buffers: Buffers) -> Iterator[str]:
    """What reading the weights once costs a token: the most that memory lets one stream generate."""
    share = plan.model.active_parameters / max(1, plan.model.parameters)
    seconds = 0.0
    for index in range(run.placement.devices):
        card = plan.deployment.cards[index]
        if not card.bandwidth_bytes_per_second:
            return
        seconds += buffers.model[index] * share / card.bandwidth_bytes_per_second
    hosted = sum(
        tensor.nbytes
        for tensor in run.tensors
        if tensor.layer >= 0 and run.placement.device_of_tensor(tensor) == run.placement.host
    )
    seconds += hosted * share / HOST_BANDWIDTH
    if seconds:
        host = (
            f", {hosted / 2**30:.1f} GiB of them from RAM at an assumed {HOST_BANDWIDTH / 1e9:.0f} GB/s"
            if hosted
            else ""
        )
        yield f"at most {1 / seconds:.0f} tokens/s for one stream, by reading the weights once a token{host}"
