"""The NVIDIA cards of this machine, if there are any. Nothing in a plan needs this.

nvidia-smi is asked first (no import, works without any Python package), then NVML through pynvml where that is
installed. On native Linux a program sees the total less what the driver reserves (`memory.reserved`); on Windows
and WSL2 it sees the whole total. Both were checked on machines that publish the two figures: see docs/method.md.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from planner.errors import UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.units import MIB

_FIELDS: Final = ("index", "name", "driver_version", "memory.total", "memory.used", "memory.reserved")
_FIELDS_BEFORE_510: Final = _FIELDS[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGpu:
    """One card as the driver describes it now; sizes in bytes.

    `total_memory_bytes` is what a program is told (cudaMemGetInfo, torch); `used_bytes` is what all processes and
    the driver hold at the moment.
    """

    index: int
    name: str
    driver: str
    nvidia_smi_bytes: int
    reserved_bytes: int
    used_bytes: int

    @property
    def total_memory_bytes(self) -> int:
        return self.nvidia_smi_bytes - self.reserved_bytes

    @property
    def gpu(self) -> Gpu:
        """The card of the table with this machine's memory; a card that the table lacks keeps only its memory."""
        try:
            return find_gpu(self.name, memory_bytes=self.total_memory_bytes)
        except UnknownGpu:
            return unnamed_gpu(self.total_memory_bytes)


def detect_gpus(*, timeout_seconds: float = 5.0) -> tuple[LocalGpu, ...]:
    """The cards of this machine by index; empty without an NVIDIA driver, or when it does not answer in time."""
    whole_total = platform.system() == "Windows" or "microsoft" in platform.release().lower()
    found = _from_nvidia_smi(timeout_seconds) or _from_nvml()
    if not whole_total:
        return found
    return tuple(
        LocalGpu(
            index=card.index,
            name=card.name,
            driver=card.driver,
            nvidia_smi_bytes=card.nvidia_smi_bytes,
            reserved_bytes=0,
            used_bytes=card.used_bytes,
        )
        for card in found
    )


def _from_nvidia_smi(timeout_seconds: float) -> tuple[LocalGpu, ...]:
    for fields in (_FIELDS, _FIELDS_BEFORE_510):
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
        except (OSError, subprocess.SubprocessError, ValueError):
            return ()
        if answer.returncode == 0:
            return parse_nvidia_smi(answer.stdout)
    return ()


def parse_nvidia_smi(text: str) -> tuple[LocalGpu, ...]:
    """The cards in nvidia-smi's csv answer to the query above; lines that hold no memory size are left out.

    (A card without its own memory, e.g. GB10, prints "[N/A]".)
    """
    cards = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) not in (len(_FIELDS), len(_FIELDS_BEFORE_510)):
            continue
        index, name, driver, *sizes = cells
        if not index.isdecimal() or not all(size.isdecimal() and len(size) < 10 for size in sizes):
            continue
        total, used, reserved = [int(size) * MIB for size in sizes] + [0] * (3 - len(sizes))
        cards.append(
            LocalGpu(
                index=int(index),
                name=name,
                driver=driver,
                nvidia_smi_bytes=total,
                reserved_bytes=reserved,
                used_bytes=used,
            )
        )
    return tuple(cards)


def _from_nvml() -> tuple[LocalGpu, ...]:
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        cards = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = _nvml_memory(handle, pynvml.nvmlDeviceGetMemoryInfo, getattr(pynvml, "nvmlMemory_v2", None))
            if memory is None:
                continue
            total, used, reserved = memory
            cards.append(
                LocalGpu(
                    index=index,
                    name=_text(pynvml.nvmlDeviceGetName(handle)),
                    driver=driver,
                    nvidia_smi_bytes=total,
                    reserved_bytes=reserved,
                    used_bytes=used,
                )
            )
        return tuple(cards)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _nvml_memory(handle: object, read: Callable[..., object], version_2: object) -> tuple[int, int, int] | None:
    """Total, used and reserved bytes; reserved is 0 where the driver knows only the first version of the call."""
    for arguments in ((handle, version_2), (handle,)):
        if arguments[-1] is None:
            continue
        try:
            memory = read(*arguments)
        except Exception:  # NVMLError of a driver without version 2, TypeError of a binding without it
            continue
        sizes = [getattr(memory, field, 0) for field in ("total", "used", "reserved")]
        return int(sizes[0]), int(sizes[1]), int(sizes[2])
    return None


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
