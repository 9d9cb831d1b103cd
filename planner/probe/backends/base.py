"""What a back end answers: how much memory there is, and what is allocated, reserved and in use.

All sizes in bytes. "Live" is what tensors hold; "reserved" what the framework took from the driver for them; "used"
what the driver says of the whole device (for the CPU: of this process).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device that is measured, by name, with its memory as the driver reports it."""

    name: str
    kind: str
    total_bytes: int
    free_bytes: int
    details: dict[str, str]


class Meter(Protocol):
    """Reads memory while a workload runs inside it."""

    torch_device: str

    def __enter__(self) -> Meter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def device(self) -> Device:
        """The device, now."""
        ...

    def live_bytes(self) -> int:
        """What tensors hold now."""
        ...

    def restart_peak(self) -> None:
        """Forget the peak; the next one starts from what is live."""
        ...

    def peak_bytes(self) -> int:
        """The most that tensors held since the last restart."""
        ...

    def reserved_bytes(self) -> int | None:
        """The most that was reserved since the meter was entered; None where nothing is reserved."""
        ...

    def used_bytes(self) -> int:
        """The most in use by the driver's account since the meter was entered."""
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """The error says that memory ran out."""
        ...

    def release(self) -> None:
        """Give back what is held for nothing."""
        ...
