"""What is impossible or contradictory in the figures of one torch message, each as a sentence."""

from __future__ import annotations

from planner.diagnosis.result import Message
from planner.diagnosis.rules.torch_figures import torch_figures
from planner.diagnosis.sizes import NOT_AVAILABLE_BYTES, is_sane
from planner.units import format_size

_NAMES = {
    "process_in_use_bytes": "this process's use",
    "other_process_bytes": "another process's use",
    "allowed_bytes": "the allowed amount",
    "free_bytes": "free",
    "total_bytes": "the capacity",
    "allocated_bytes": "allocated",
}


def contradictions(message: Message) -> tuple[str, ...]:
    """Sentences that name impossible values and pairs that cannot both be true; empty when all agree."""
    if not message.program.startswith("pytorch") or message.program == "pytorch-mps":
        return ()
    found = [_unavailable(name, message) for name in _NAMES if message.bytes_of(name) is not None]
    r = torch_figures(message)
    for name in r.dropped:
        if name == "process_in_use_bytes" and is_sane(message.bytes_of(name)):
            found.append(
                f"NVML's figure for this process ({format_size(message.bytes_of(name) or 0)}) is less than torch has "
                "reserved: not usable (containers, MIG, WSL), so it is left out"
            )
    pairs = (
        ("allocated", r.allocated, "reserved", r.reserved),
        ("free", r.free, "the capacity", r.total),
        ("the allowed amount", r.allowed, "the capacity", r.total),
        ("this process's use", r.in_use, "the capacity", r.total),
        ("allocated", r.allocated, "the capacity", r.total),
    )
    margins = max((f.margin_bytes for f in message.figures.values()), default=0) * 2
    for name, value, bound, most in pairs:
        if value is not None and most is not None and value > most + margins:
            found.append(
                f"{name} ({format_size(value)}) is more than {bound} ({format_size(most)}): one of them is not right"
            )
    return tuple(dict.fromkeys(s for s in found if s))


def _unavailable(name: str, message: Message) -> str:
    value = message.bytes_of(name) or 0
    if is_sane(value):
        return ""
    what = "no limit, or not available" if value == NOT_AVAILABLE_BYTES else "no size of memory"
    return f"{_NAMES[name]} is printed as {value} bytes, which means {what}; it is left out"
