"""Several servers of one source on one device: vLLM's fractions are of the whole card, and they add up."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from planner.launches.record import Launch, LaunchPlan

# gpu_memory_utilization of a server that does not state one (vllm/config.py CacheConfig up to 0.19).
_DEFAULT_FRACTION: Final = 0.9


def fraction(plan: LaunchPlan) -> float:
    """The share of the card's total memory that a vLLM server takes."""
    value = plan.get("gpu-memory-utilization", _DEFAULT_FRACTION)
    return float(value)


def same_device(one: LaunchPlan, other: LaunchPlan, *, together: bool = False) -> bool:
    """Whether two servers are pinned to a common device.

    Args:
        together: they run on one machine at the same time, so that one that sees every device shares the others'.
    """
    if together and (one.sees_all or other.sees_all):
        return True
    if one.device is None or other.device is None:
        return bool(one.name and other.name and other.name in one.beside)
    return bool(set(one.device.split(",")) & set(other.device.split(",")))


def say_sharing(launch: Launch) -> None:
    """A note for each pair of servers on one device, with the sum of their fractions where both are vLLM's."""
    serving = [plan for plan in launch.plans if plan.kind == "serve"][:50]
    for one, other in combinations(serving, 2):
        if not same_device(one, other, together=launch.form == "compose"):
            continue
        names = f"{one.name or one.model} and {other.name or other.model}"
        where = f"device {one.device}" if one.device else "one device"
        if one.tool == other.tool == "vllm":
            total = fraction(one) + fraction(other)
            end = ", so the second to start fails" if total > 1 else ""
            launch.note(
                f"{names} both run on {where}: their fractions add to {fraction(one):g} + {fraction(other):g} ="
                f" {total:g} of the card{end}"
            )
            launch.note("vLLM's fraction is of the total memory, and what another process holds counts against it")
        else:
            launch.note(f"{names} both run on {where}: what they take adds up")


def overcommitted(launch: Launch) -> bool:
    """Whether vLLM servers on one device ask for more than the whole card."""
    serving = [plan for plan in launch.plans if plan.kind == "serve" and plan.tool == "vllm"][:50]
    together = launch.form == "compose"
    return any(
        same_device(one, other, together=together) and fraction(one) + fraction(other) > 1
        for one, other in combinations(serving, 2)
    )
