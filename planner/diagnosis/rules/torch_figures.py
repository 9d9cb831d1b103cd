"""The figures of a torch message brought to one form, whatever its age. All sizes in bytes.

What is missing is None; a value that cannot be one (NVML's 0 or 2^64) is dropped here and named in `dropped`.
Two readings of one moment are never added: allocated lies inside reserved, reserved inside this process's use.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.diagnosis.result import Message, Process
from planner.diagnosis.sizes import ABSURD_BYTES, is_sane
from planner.units import GIB

# Device memory of a process that no allocator counts: CUDA context and libraries. 0.3 to 1.2 GiB in measured cases.
CONTEXT_TYPICAL_BYTES = GIB // 2
CONTEXT_MOST_BYTES = 6 * GIB // 5
# In a container the own pid is unknown to NVML, and this process appears as "Process N".
_OWN_SHARE = 98
# What libraries beside torch (NCCL, cuBLAS, graphs) take of a card in the process that runs it.
OWN_LIBRARIES_PERCENT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFigures:
    """The moment of the failure, as far as the message tells it.

    Attributes:
        slack: reserved by the allocator and not allocated.
        in_use: what NVML says this process has; `held` is that, or what the allocator has reserved.
        listed: what the message lists of other processes, together; `holders` are they.
        other: capacity - free - held: what neither this process's figures nor the free memory explain.
        other_at_least: the same where only a limit of this process is known, which bounds what it can have.
        other_at_most: the same where only its tensors are known, which are part of what it has.
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
    own_pid: int | None = None
    holders: tuple[Process, ...] = ()
    dropped: tuple[str, ...] = ()
    free_inferred: bool = False

    @property
    def held(self) -> int | None:
        """What this process has on the device as far as known: NVML's figure, or the allocator's."""
        return self.in_use if self.in_use is not None else self.reserved

    @property
    def other(self) -> int | None:
        """What something else has, or the process outside its allocator; None when a figure is missing."""
        if self.occupied is None or self.held is None or self.free_inferred:
            return None
        return max(0, self.occupied - self.held)

    @property
    def other_at_least(self) -> int:
        """What others must have: beyond the limit of this process, or as listed."""
        listed = self.listed or 0
        if self.occupied is None or self.allowed is None or self.total is None or self.allowed >= self.total:
            return listed
        return max(listed, self.occupied - self.allowed)

    @property
    def other_at_most(self) -> int | None:
        """What is in use and no tensor of this process; None where that is not known either."""
        if self.occupied is None or self.allocated is None or self.free_inferred:
            return None
        return max(0, self.occupied - self.allocated)

    @property
    def other_includes_context(self) -> bool:
        """Whether the own CUDA context (0.3 to 1.2 GiB) counts in `other`."""
        return self.in_use is None

    @property
    def occupied(self) -> int | None:
        """Capacity minus free."""
        return None if self.total is None or self.free is None else max(0, self.total - self.free)

    @property
    def missing(self) -> int | None:
        """What the request exceeds the free memory by."""
        return None if self.tried is None or self.free is None else max(0, self.tried - self.free)


def torch_figures(message: Message) -> TorchFigures:
    """The figures of a torch message of any version or back end."""
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
    figure("total_bytes")
    total, free = message.capacity, figure("free_bytes")
    in_use, listed = figure("process_in_use_bytes"), figure("other_process_bytes")
    if in_use is not None and (
        (reserved is not None and in_use + message.margin_of("process_in_use_bytes") < reserved // 2)
        or (in_use == 0 and (allocated or 0) > 0)
    ):
        dropped.append("process_in_use_bytes")
        in_use = None
    holders, own_pid = message.processes, None
    if in_use is None and listed is not None:
        own = _own_process(message.processes, reserved if reserved is not None else allocated, total, free)
        if own is not None:
            in_use, own_pid = own.size_bytes, own.pid
            holders = tuple(p for p in holders if p is not own)
            listed = sum(p.size_bytes or 0 for p in holders) or None
    inferred = free is None and total is not None and reserved is not None and message.program == "pytorch-xpu"
    if inferred and total is not None and reserved is not None:
        free = max(0, total - reserved)
    return TorchFigures(
        tried=message.bytes_of("tried_bytes"),
        total=total,
        free=free,
        allowed=figure("allowed_bytes"),
        allocated=allocated,
        private=private,
        reserved=reserved,
        slack=slack,
        in_use=in_use,
        listed=listed,
        own_pid=own_pid,
        holders=holders,
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


def _own_process(listed: tuple[Process, ...], known: int | None, total: int | None, free: int | None) -> Process | None:
    """The listed process that is this one, in a container that does not know its own pid; None if none can be.

    It has what torch has reserved, and a context and libraries besides. One process that holds nothing of torch's is
    not it, however full the card.
    """
    if known is None or total is None or free is None:
        return None
    most = known + CONTEXT_MOST_BYTES + total * OWN_LIBRARIES_PERCENT // 100
    fitting = [
        p
        for p in listed
        if p.size_bytes is not None and p.size_bytes * 100 >= _OWN_SHARE * known and p.size_bytes <= most
    ]
    if not fitting or known == 0:
        return None
    return min(fitting, key=lambda p: p.size_bytes or 0)


def is_absurd(tried: int | None) -> bool:
    """Whether a request is no size of memory: 2^50 or more, or negative (printed as nearly 2^64)."""
    return tried is not None and (tried >= ABSURD_BYTES or tried < 0)
