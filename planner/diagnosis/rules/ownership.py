"""Whose the memory of a device is: this process's tensors, its cache, what it has outside torch, others' by name."""

from __future__ import annotations

from dataclasses import replace

from planner.diagnosis.result import Message, Ownership, Process
from planner.diagnosis.rules.torch_figures import torch_figures
from planner.diagnosis.sizes import is_sane

# A card in use by less than this part is free for another program.
_FREE_PERCENT = 10
# Two capacities of one card: the driver's reserve and ECC lie between what CUDA and nvidia-smi print.
_SAME_CARD_PERCENT = 8


def ownership(message: Message) -> Ownership:
    """The shares as far as one message tells them."""
    if message.program.startswith("pytorch") and message.program != "pytorch-mps":
        return _of_torch(message)
    if message.program == "pytorch-mps":
        return Ownership(
            total=message.bytes_of("allowed_bytes"),
            tensors=message.bytes_of("allocated_bytes"),
            outside=message.bytes_of("mps_other_bytes"),
        )
    if message.program == "nvidia-smi":
        total, used = message.bytes_of("total_bytes"), message.bytes_of("in_use_bytes")
        free = None if total is None or used is None else max(0, total - used)
        return Ownership(total=total, free=free, holders=message.processes)
    free = message.bytes_of("free_bytes")
    total = message.capacity
    return Ownership(total=total, free=free if is_sane(free) else None)


def _of_torch(message: Message) -> Ownership:
    r = torch_figures(message)
    unused = (
        None if r.slack is None else r.slack + (r.private or 0 if "reserved_total_bytes" not in message.figures else 0)
    )
    outside = None if r.in_use is None or r.reserved is None else max(0, r.in_use - r.reserved)
    others = r.listed if r.holders else r.other if r.in_use is not None else None
    if others is None and r.other_at_least:
        others = r.other_at_least
    if others is None and r.other is not None and r.other_includes_context:
        others = r.other
    return Ownership(
        total=r.total,
        free=None if r.free_inferred else r.free,
        tensors=r.allocated,
        unused=unused,
        outside=outside,
        others=others,
        own_pid=r.own_pid,
        holders=r.holders,
    )


def matching_gpu(message: Message, gpus: list[Message]) -> Message | None:
    """The row of nvidia-smi that is the message's device; None when none can be told.

    GPU N of a message is the N-th of CUDA_VISIBLE_DEVICES where the text names it, else taken as nvidia-smi's index.
    The capacities must agree.
    """
    index = message.device
    visible = [v for v in message.context.get("visible_devices", "").split(",") if v.isdigit()]
    if index is not None and visible:
        index = int(visible[index]) if index < len(visible) else None
    fitting = [g for g in gpus if _same_card(message.bytes_of("total_bytes"), g.bytes_of("total_bytes"))]
    if index is None:
        return fitting[0] if len(gpus) == 1 and fitting else None
    return next((g for g in fitting if g.device == index), None)


def _same_card(printed: int | None, listed: int | None) -> bool:
    return printed is None or listed is None or abs(printed - listed) * 100 <= max(printed, listed) * _SAME_CARD_PERCENT


def with_gpus(own: Ownership, message: Message, gpus: list[Message]) -> Ownership:
    """The shares with the names that a pasted nvidia-smi gives, and the GPUs that are free."""
    gpu = matching_gpu(message, gpus)
    free = tuple(
        (g.device, used, total)
        for g in gpus
        if g is not gpu and g.device is not None
        for used, total in ((g.bytes_of("in_use_bytes"), g.bytes_of("total_bytes")),)
        if used is not None and total is not None and used * 100 < total * _FREE_PERCENT
    )
    own = replace(own, free_gpus=free)
    if gpu is None:
        return own
    own_pid = own.own_pid if own.own_pid is not None else _pid(message)
    held = None if own.tensors is None else own.tensors + (own.unused or 0) + (own.outside or 0)
    others = [p for p in gpu.processes if p.pid != own_pid or p.pid is None]
    if own_pid is None and held:
        others = [p for p in others if not _is_this(p, held)] if len(others) > 1 else _unless_alone(others, held)
    known = {p.pid: p for p in others}
    named = tuple(replace(p, name=known[p.pid].name) if p.pid in known else p for p in own.holders)
    rest = tuple(p for p in others if p.pid not in {h.pid for h in named})
    holders = tuple(sorted((*named, *rest), key=lambda p: -(p.size_bytes or 0)))
    total = own.total if own.total is not None else gpu.bytes_of("total_bytes")
    return replace(own, holders=holders, total=total)


def _pid(message: Message) -> int | None:
    pid = message.context.get("pid", "")
    return int(pid) if pid.isdigit() else None


def _is_this(process: Process, held: int) -> bool:
    """Whether a listed process has about what this one has, with a context."""
    size = process.size_bytes
    return size is not None and held * 95 <= size * 100 and size <= held + (3 << 29) + held // 20


def _unless_alone(processes: list[Process], held: int) -> list[Process]:
    return [p for p in processes if not _is_this(p, held)]
