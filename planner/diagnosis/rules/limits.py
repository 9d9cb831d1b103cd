"""Rules for requests that no amount of free memory would have served: impossible, larger than the card, or limited."""

from __future__ import annotations

from planner.diagnosis.result import Confidence, FailureClass, Message, Verdict
from planner.diagnosis.rules.large_tensors import shape_sentence
from planner.diagnosis.rules.thresholds import (
    FREE_MARGIN_BYTES,
    FREE_MARGIN_PERCENT,
    XPU_BLOCK_BYTES,
    has_clue,
    is_huge,
    percent,
)
from planner.diagnosis.rules.torch_figures import TorchFigures, is_absurd
from planner.units import format_size


def impossible_size(tried: int | None) -> Verdict | None:
    """2^50 bytes or more, or a negative number that was printed as nearly 2^64: a bug."""
    if not is_absurd(tried):
        return None
    return Verdict(
        failure="bug",
        confidence="high",
        rule="the size is impossible (2^50 bytes or more, or a negative number)",
        evidence=(f"a request of {format_size(tried or 0)} is an overflowed or negative size",),
        would_change=("nothing about memory: the size has to be right first",),
        advise=("fix_size_bug",),
    )


def memory_fraction(message: Message, r: TorchFigures) -> Verdict | None:
    """A memory fraction is in force, and the card has room for the request."""
    if "torch_preempted" in message.kinds:
        return Verdict(
            failure="limit_not_capacity",
            second="device_full",
            confidence="high",
            rule="torch rejected the request because of per_process_memory_fraction",
            evidence=("the message names the limit",),
            would_change=("a larger fraction",),
            advise=("raise_fraction",),
        )
    if r.allowed is None or r.total is None or r.free is None or r.tried is None:
        return None
    if not (r.allowed < r.total - message.margin_of("total_bytes") and r.free > r.tried):
        return None
    evidence = [
        f"{format_size(r.allowed)} allowed of {format_size(r.total)} ({percent(r.allowed, r.total)}%): a fraction",
        f"{format_size(r.free)} free on the device, more than the {format_size(r.tried)} asked for",
    ]
    if r.reserved is not None:
        evidence.append(f"{format_size(r.reserved)} reserved, so the request passes the limit, not the card")
    return Verdict(
        failure="limit_not_capacity",
        second="fragmentation_clue" if has_clue(r) else "device_full",
        confidence="high",
        rule="an allowed amount below the capacity is printed, and more than the request is free",
        evidence=tuple(evidence),
        would_change=("no fraction: the request would then have gone to the driver",),
        advise=("raise_fraction",),
    )


def larger_than_card(message: Message, r: TorchFigures) -> Verdict | None:
    """The request exceeds the capacity."""
    if r.tried is None or r.total is None or r.tried < r.total:
        return None
    evidence = [f"{format_size(r.tried)} asked of a card of {format_size(r.total)}", shape_sentence(r.tried)]
    if r.reserved is not None and r.reserved > r.total:
        evidence.append("more is reserved than the card has: the driver already spills to system memory")
    return Verdict(
        failure="single_huge",
        confidence="high",
        rule="the request is larger than the whole card",
        evidence=tuple(evidence),
        would_change=("a request below the capacity",),
    )


def spilled(message: Message, r: TorchFigures) -> Verdict | None:
    """More is reserved than the card has (by 2%): Windows' fallback to system memory."""
    if r.reserved is None or r.total is None or r.reserved * 100 <= r.total * 102:
        return None
    return Verdict(
        failure="device_full",
        second="single_huge" if is_huge(r) else "limit_not_capacity",
        confidence="high",
        rule="more is reserved than the card has",
        evidence=(
            f"{format_size(r.reserved)} reserved on a card of {format_size(r.total)}: impossible as device memory; the "
            "Windows driver backs the rest with system memory, slowly, until its commit limit",
        ),
        would_change=("figures that stay below the capacity, as on systems without that fallback",),
        advise=("windows_shared",),
    )


def free_beats_request(message: Message, r: TorchFigures) -> Verdict | None:
    """Much more than the request was free: not a full card."""
    if r.tried is None or r.total is None or r.free is None:
        return None
    margin = max(FREE_MARGIN_BYTES, r.total * FREE_MARGIN_PERCENT // 100)
    if r.free - r.tried <= margin:
        return None
    evidence = [
        f"{format_size(r.free)} of {format_size(r.total)} free"
        + (" (inferred: capacity - reserved)" if r.free_inferred else "")
        + f", against a request of {format_size(r.tried)}: the card had room",
    ]
    if message.program == "pytorch-xpu" and (is_huge(r) or r.tried >= XPU_BLOCK_BYTES):
        return _one_allocation(message, r, evidence)
    second, confidence = _reading_of_limit(r, evidence)
    if is_huge(r) and second != "fragmentation_clue":
        second, confidence = "single_huge", "medium"
        evidence.append(shape_sentence(r.tried))
    return Verdict(
        failure="limit_not_capacity",
        second=second,
        confidence=confidence,
        rule=f"free exceeds the request by more than {format_size(margin)}",
        evidence=tuple(evidence),
        would_change=(
            "a memory_summary at that moment, or the same work after a restart"
            if r.reserved is None
            else _hidden_limit(message),
            f"free memory of less than {format_size(r.tried + margin)}",
        ),
        advise=("find_limit",),
    )


def _one_allocation(message: Message, r: TorchFigures, evidence: list[str]) -> Verdict:
    """A large request with room for it: drivers limit a single allocation."""
    if message.program == "pytorch-xpu":
        evidence.append("XPU drivers limit one allocation (4 GiB on some parts, less under WSL)")
    evidence.append(shape_sentence(r.tried or 0))
    return Verdict(
        failure="single_huge",
        second="limit_not_capacity",
        confidence="medium" if is_huge(r) else "low",
        rule="more than the request was free, and the request is large: a limit for one allocation",
        evidence=tuple(evidence),
        would_change=("the same total in several smaller tensors: if that works, it is a limit for one allocation",),
        advise=("allocation_limit", "shrink_tensor"),
    )


def _reading_of_limit(r: TorchFigures, evidence: list[str]) -> tuple[FailureClass, Confidence]:
    """The second reading and the confidence; adds what speaks for it."""
    spare = 0 if not r.total else ((r.free or 0) - (r.tried or 0)) * 100 // r.total
    if r.reserved is None:
        evidence.append("the text does not say what this process holds")
        return "fragmentation_clue", "low"
    if has_clue(r):
        evidence.append(f"{format_size(r.slack or 0)} of slack would have served the request too")
        return "fragmentation_clue", "medium"
    evidence.append(
        f"{format_size(r.reserved)} reserved: nothing of this process explains it; CUDA reports limits of the host "
        "(commit charge, ulimit -v, cgroup) as out of memory too"
    )
    return "host_memory", "high" if spare >= 50 else "medium"


def _hidden_limit(message: Message) -> str:
    hint = message.version_hint or ""
    if hint.startswith(("torch 2.1", "torch 2.2")):
        return "a memory fraction: torch 2.1 to 2.4 applies it without printing it"
    return "a fraction, ulimit, page file or container limit in the environment: it would settle it"
