"""The figures of a torch message brought to one form, whatever its age. All sizes in bytes.

What is missing is None; a value that cannot be one (NVML's 0 or 2^64) is dropped here and named in `dropped`.
Two readings of one moment are never added: allocated lies inside reserved, reserved inside this process's use.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.diagnosis.result import Message
from planner.diagnosis.sizes import ABSURD_BYTES, is_sane
from planner.units import GIB

# Device memory of a process that no allocator counts: CUDA context and libraries. 0.3 to 1.2 GiB in measured cases.
CONTEXT_TYPICAL_BYTES = GIB // 2
CONTEXT_MOST_BYTES = 6 * GIB // 5
# In a container the own pid is unknown to NVML, and this process appears as "Process N".
_OWN_SHARE = 98
_OWN_TOLERANCE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFigures:
    """The moment of the failure, as far as the message tells it.

    Attributes:
        slack: reserved by the allocator and not allocated.
        in_use: what NVML says this process has; `held` is that, or what the allocator has reserved.
        other: capacity - free - held: what neither this process's figures nor the free memory explain.
        other_includes_context: the process's own context is part of `other`, because `in_use` is not known.
    """

    tried: int | None
    total: int | None
    free: int | None
    allowed: int | None
    allocated: int | None
    private: int | None
    reserved: int | None
    slack: int | None
    in_use: int | None
    listed: int | None
    dropped: tuple[str, ...] = ()
    free_inferred: bool = False

    @property
    def held(self) -> int | None:
        """What this process has on the device as far as known: NVML's figure, or the allocator's."""
        return self.in_use if self.in_use is not None else self.reserved

    @property
    def other(self) -> int | None:
        """What something else has, or the process outside its allocator; None when a figure is missing."""
        if self.total is None or self.free is None or self.held is None or self.free_inferred:
            return None
        return max(0, self.total - self.free - self.held)

    @property
    def other_includes_context(self) -> bool:
        """Whether the own CUDA context (0.3 to 1.2 GiB) counts in `other`."""
        return self.in_use is None

    @property
    def occupied(self) -> int | None:
        """Capacity minus free."""
        return None if self.total is None or self.free is None else self.total - self.free


def torch_figures(message: Message) -> TorchFigures:
    """The reading of a torch message of any version or back end."""
    dropped: list[str] = []

    def figure(name: str) -> int | None:
        value = message.bytes_of(name)
        if value is not None and not is_sane(value):
            dropped.append(name)
            return None
        return value

    allocated, private = figure("allocated_bytes"), figure("private_pool_bytes")
    reserved, slack = _reserved(
        allocated,
        private or 0,
        figure("reserved_total_bytes"),
        figure("reserved_unallocated_bytes"),
        figure("reserved_total_bytes_excluding_allocated"),
    )
    total, free = figure("total_bytes"), figure("free_bytes")
    in_use, listed = figure("process_in_use_bytes"), figure("other_process_bytes")
    if (
        in_use is not None
        and reserved is not None
        and in_use + message.margin_of("process_in_use_bytes") < reserved // 2
    ):
        dropped.append("process_in_use_bytes")
        in_use = None
    if in_use is None and _is_own(listed, message, reserved, total, free):
        in_use, listed = listed, None
    inferred = free is None and total is not None and reserved is not None and message.program == "pytorch-xpu"
    if inferred and total is not None and reserved is not None:
        free = max(0, total - reserved)
    tried = message.bytes_of("tried_bytes")
    return TorchFigures(
        tried=tried,
        total=total,
        free=free,
        allowed=figure("allowed_bytes"),
        allocated=allocated,
        private=private,
        reserved=reserved,
        slack=slack,
        in_use=in_use,
        listed=listed,
        dropped=tuple(dict.fromkeys(dropped)),
        free_inferred=inferred,
    )


def _reserved(
    allocated: int | None, private: int, total: int | None, unallocated: int | None, cached: int | None
) -> tuple[int | None, int | None]:
    """Reserved and slack from whichever three of the five figures a version prints.

    1.4 to 2.0 print the sum; 1.0 to 1.3 print `cached`, which is the rest; 2.1+ print the rest, less private pools.
    """
    if total is not None:
        return total, None if allocated is None else max(0, total - allocated)
    rest = unallocated if unallocated is not None else cached
    if rest is None:
        return None, None
    return (None if allocated is None else allocated + private + rest), rest


def _is_own(listed: int | None, message: Message, reserved: int | None, total: int | None, free: int | None) -> bool:
    """Whether the only listed process is this one: all of reserved, and all that is not free."""
    if listed is None or "other_process_list" in message.figures or total is None or free is None:
        return False
    occupied = total - free
    near = abs(listed - occupied) * 100 <= _OWN_TOLERANCE * max(occupied, 1)
    return near and (reserved is None or listed * 100 >= _OWN_SHARE * reserved)


def is_absurd(tried: int | None) -> bool:
    """Whether a request is no size of memory: 2^50 or more, or negative (printed as nearly 2^64)."""
    return tried is not None and (tried >= ABSURD_BYTES or tried < 0)
