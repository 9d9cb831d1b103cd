"""Before and after: is there room for what the plan says, and an out-of-memory error as a measurement."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from planner.errors import ProbeError
from planner.probe.backends.base import Device, Meter
from planner.units import format_size


def require_room(device: Device, needed_bytes: int, *, force: bool = False) -> None:
    """The plan's need is free on the device.

    Raises:
        ProbeError: it is not; says by how much.
    """
    short = needed_bytes - device.free_bytes
    if short > 0 and not force:
        raise ProbeError(
            f"the plan needs {format_size(needed_bytes)} and {device.name} has {format_size(device.free_bytes)} free of"
            f" {format_size(device.total_bytes)}: {format_size(short)} short; fewer --layers, a smaller batch or"
            " length, or --force to run into it",
            field="device",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """Memory ran out: where, what was live at most, and what the framework said."""

    phase: str
    peak_bytes: int
    message: str


def out_of_memory(meter: Meter, error: BaseException, phase: str) -> OutOfMemory:
    """What an out-of-memory error measured; other errors are raised again.

    The frames of the error hold the tensors that filled the card: they are let go of before memory is released.
    """
    if not meter.is_out_of_memory(error):
        raise error
    found = OutOfMemory(phase=phase, peak_bytes=meter.peak_bytes(), message=" ".join(str(error).split())[:500])
    drop_frames(error)
    meter.release()
    return found


def drop_frames(error: BaseException | None) -> None:
    """Let go of everything that the traceback of an error, and of what caused it, keeps alive."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        trace: Any = error.__traceback__
        while trace is not None:
            with contextlib.suppress(RuntimeError):  # a frame that still runs
                trace.tb_frame.clear()
            trace = trace.tb_next
        error.__traceback__ = None
        error = error.__context__
