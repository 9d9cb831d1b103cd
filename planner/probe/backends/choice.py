"""Which device is measured: what was asked for, or the first accelerator, or the CPU."""

from __future__ import annotations

from planner.errors import UsageError
from planner.probe.backends.accelerator import AcceleratorMeter
from planner.probe.backends.base import Meter
from planner.probe.backends.cpu import CpuMeter
from planner.probe.extras import library

DEVICES = ("auto", "cuda", "rocm", "cpu")


def meter_for(device: str, *, share_bytes: int | None = None) -> Meter:
    """The meter of a device: "auto", "cpu", "cuda", "cuda:1", "rocm".

    Raises:
        UsageError: no such kind of device.
        ProbeError: it is not usable here.
    """
    kind, _, number = device.partition(":")
    if kind not in DEVICES or (number and not number.isdigit()):
        raise UsageError(
            f"--device {device[:40]!r} is not known; expected auto, cuda, cuda:1, rocm or cpu", field="device"
        )
    if kind == "cpu":
        return CpuMeter()
    if kind == "auto" and not library("torch").cuda.is_available():
        return CpuMeter()
    return AcceleratorMeter(int(number or 0), share_bytes=share_bytes)
