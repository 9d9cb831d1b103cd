"""The CPU as a device: exact bytes of live tensors, and what the kernel says of this process."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from planner.probe.backends.base import Device
from planner.probe.backends.live_storage import LiveStorage, tracking_mode
from planner.probe.extras import library

_STATUS: Final = Path("/proc/self/status")
_MEMORY: Final = Path("/proc/meminfo")


class CpuMeter:
    """Live storages by watching operations; resident memory from /proc where there is one."""

    torch_device = "cpu"

    def __init__(self) -> None:
        self._torch = library("torch")
        self._count = LiveStorage()
        self._mode: Any = None
        self._threads = self._torch.get_num_threads()

    def __enter__(self) -> CpuMeter:
        self._mode = tracking_mode(self._torch, self._count)
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mode.__exit__(kind, error, trace)
        self._torch.set_num_threads(self._threads)

    def device(self) -> Device:
        """The machine's memory."""
        total = _kib(_MEMORY, "MemTotal") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        free = _kib(_MEMORY, "MemAvailable") or total
        return Device(
            name=platform.processor() or platform.machine(), kind="cpu", total_bytes=total, free_bytes=free, details={}
        )

    def live_bytes(self) -> int:
        """Bytes of live storages."""
        return self._count.live

    def restart_peak(self) -> None:
        """Forget the peak."""
        self._count.peak = self._count.live

    def peak_bytes(self) -> int:
        """Most bytes of live storages since the last restart."""
        return self._count.peak

    def reserved_bytes(self) -> None:
        """The CPU allocator reserves nothing."""

    def used_bytes(self) -> int:
        """Peak resident memory of this process, everything in it counted (interpreter and libraries too)."""
        return _kib(_STATUS, "VmHWM") or 0

    def is_out_of_memory(self, error: BaseException) -> bool:
        """A MemoryError, or what torch's CPU allocator says."""
        return isinstance(error, MemoryError) or "can't allocate memory" in str(error)

    def release(self) -> None:
        """Nothing is held."""


def _kib(path: Path, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None
