"""CUDA and ROCm through torch, with the driver's view from NVML where there is one (torch's own elsewhere)."""

from __future__ import annotations

import gc
import threading
from types import TracebackType
from typing import Any, Final

from planner.errors import ProbeError
from planner.probe.backends.base import Device
from planner.probe.extras import library

_SAMPLE_SECONDS: Final = 0.01


class AcceleratorMeter:
    """Peaks of torch's caching allocator on one device, and a sampler of what the driver says is in use.

    The process is kept to a share of the card, which is given back at the end; nothing is reset or killed.

    Args:
        share_bytes: the most this process may reserve (None: what is free).
    """

    def __init__(self, index: int = 0, *, share_bytes: int | None = None) -> None:
        self._torch = torch = library("torch")
        if not torch.cuda.is_available():
            raise ProbeError("no CUDA or ROCm device is usable here; --device cpu measures on the CPU", field="device")
        if not 0 <= index < torch.cuda.device_count():
            raise ProbeError(f"--device: there is no device {index}; {torch.cuda.device_count()} found", field="device")
        self.index = index
        self.torch_device = f"cuda:{index}"
        self._share = share_bytes
        self._sampler = _Sampler(_driver_reader(torch, index))

    def __enter__(self) -> AcceleratorMeter:
        cuda = self._torch.cuda
        free, total = cuda.mem_get_info(self.index)
        share = min(free, self._share) if self._share else free
        cuda.set_per_process_memory_fraction(max(0.0, min(1.0, share / total)), self.index)
        cuda.reset_peak_memory_stats(self.index)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sampler.stop()
        self.release()
        self._torch.cuda.set_per_process_memory_fraction(1.0, self.index)

    def device(self) -> Device:
        """The card, its total and free memory by the driver, and the driver's version."""
        cuda, version = self._torch.cuda, self._torch.version
        free, total = cuda.mem_get_info(self.index)
        kind = "rocm" if version.hip else "cuda"
        details = {kind: str(version.hip or version.cuda)}
        driver = _driver_version()
        if driver:
            details["driver"] = driver
        return Device(
            name=cuda.get_device_name(self.index), kind=kind, total_bytes=total, free_bytes=free, details=details
        )

    def live_bytes(self) -> int:
        """`memory_allocated`."""
        self._torch.cuda.synchronize(self.index)
        return int(self._torch.cuda.memory_allocated(self.index))

    def restart_peak(self) -> None:
        """`reset_peak_memory_stats`."""
        self._torch.cuda.synchronize(self.index)
        self._torch.cuda.reset_peak_memory_stats(self.index)

    def peak_bytes(self) -> int:
        """`max_memory_allocated`."""
        self._torch.cuda.synchronize(self.index)
        return int(self._torch.cuda.max_memory_allocated(self.index))

    def reserved_bytes(self) -> int:
        """`max_memory_reserved`: the run's most, as the allocator gives nothing back unasked."""
        return int(self._torch.cuda.max_memory_reserved(self.index))

    def used_bytes(self) -> int:
        """Most device memory in use since the meter was entered, other processes included."""
        return self._sampler.most()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """torch's OutOfMemoryError."""
        return isinstance(error, self._torch.cuda.OutOfMemoryError)

    def release(self) -> None:
        """Collect what is unreachable and give cached blocks back."""
        gc.collect()
        self._torch.cuda.empty_cache()


class _Sampler:
    """A thread that keeps the largest of many readings."""

    def __init__(self, read: Any) -> None:
        self._read, self._most = read, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._most = self._read()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._most = max(self._most, self._read())

    def most(self) -> int:
        self._most = max(self._most, self._read())
        return int(self._most)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _driver_reader(torch: Any, index: int) -> Any:
    """A function that reads what is in use on the device: NVML's account, else the driver's free memory."""

    def from_torch() -> int:
        free, total = torch.cuda.mem_get_info(index)
        return int(total - free)

    if torch.version.hip:
        return from_torch
    try:
        nvml = library("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByPciBusId(_bus_id(torch, index))
        return lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    except Exception:  # no NVML, or it does not know this card (containers, WSL)
        return from_torch


def used_before_context(device: str) -> int | None:
    """What is in use on a card before this process has a context there; None where NVML does not say, or too late.

    Asked on machines with one card only: before a context there is no telling which of several torch calls cuda:0.
    """
    torch = library("torch")
    if device.startswith(("cpu", "rocm")) or torch.cuda.is_initialized():
        return None
    try:
        nvml = library("pynvml")
        nvml.nvmlInit()
        if nvml.nvmlDeviceGetCount() != 1:
            return None
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used)
    except Exception:  # no NVML
        return None


def _bus_id(torch: Any, index: int) -> bytes:
    """The card's PCI address, since CUDA_VISIBLE_DEVICES renumbers what NVML does not."""
    found = torch.cuda.get_device_properties(index)
    return f"{found.pci_domain_id:08x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0".encode()


def _driver_version() -> str | None:
    try:
        nvml = library("pynvml")
        nvml.nvmlInit()
        text = nvml.nvmlSystemGetDriverVersion()
    except Exception:  # as above
        return None
    return text.decode() if isinstance(text, bytes) else str(text)
