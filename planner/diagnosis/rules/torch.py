"""The rules for messages of torch's caching allocators, in the order in which they are tried.

The frame is the usual one (one huge request, fragmentation, something else on the card, full), with guards where the
plain order misreads: a request of 2 or 20 MiB is a rounding artefact that any slack beats; slack on a card that is
nearly all allocated is not fragmentation; free memory well above the request means a limit; small cards are eaten by
context and display.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.diagnosis.result import Confidence, FailureClass, Message, Verdict
from planner.diagnosis.rules.large_tensors import shape_sentence
from planner.diagnosis.rules.limits import (
    free_beats_request,
    impossible_size,
    larger_than_card,
    memory_fraction,
    spilled,
)
from planner.diagnosis.rules.request_alone import by_request_alone
from planner.diagnosis.rules.thresholds import (
    ALLOCATED_PERCENT,
    FULL_PERCENT,
    HUGE_SHARE,
    OTHER_PERCENT,
    SLACK_PERCENT,
    SMALL_CARD_BYTES,
    has_clue,
    has_other,
    is_huge,
    other_least,
    percent,
    rounded_note,
    slack_sentence,
)
from planner.diagnosis.rules.torch_figures import CONTEXT_TYPICAL_BYTES, TorchFigures, is_absurd
from planner.units import format_size

_CLUE_CHANGE = (
    "a snapshot at the failure whose largest inactive block holds the request: that would refute it",
    "the same work running after a restart: that would support it",
)


def decide(message: Message, reading: TorchFigures) -> Verdict:
    """The verdict of the first rule that applies."""
    for rule in _RULES:
        verdict = rule(message, reading)
        if verdict is not None:
            return verdict
    return _full(message, reading)


def _impossible(message: Message, r: TorchFigures) -> Verdict | None:
    return impossible_size(r.tried)


def _no_capacity(message: Message, r: TorchFigures) -> Verdict | None:
    """No capacity in the text: the request alone, or undecided when the other figures contradict each other."""
    if r.total is not None:
        return None
    if r.tried is not None and r.slack is not None and r.slack > r.tried and not is_absurd(r.tried):
        free = (
            () if r.free is None else (f"{format_size(r.free)} free on the device, {format_size(r.tried)} asked for",)
        )
        return Verdict(
            failure="undecided",
            confidence="low",
            rule="no capacity printed, and the slack is larger than the request",
            evidence=(slack_sentence(r), *free),
            would_change=("the capacity", "a memory_summary or a snapshot: the allocator's state settles it"),
            advise=("look_at_allocator", "restart_test"),
        )
    return by_request_alone(r.tried, why="the message has no capacity")


def _huge(message: Message, r: TorchFigures) -> Verdict | None:
    """A quarter of the card in one request, with the rest of the card not full."""
    if r.tried is None or r.total is None or not is_huge(r):
        return None
    used = r.occupied if r.occupied is not None else r.reserved
    if used is not None and used * 100 >= r.total * FULL_PERCENT:
        return None
    second = _second_to_huge(message, r, used)
    if second == "fragmentation_clue" and r.allocated is not None and r.allocated * 2 < r.total:
        return _served_by_slack(r)
    evidence = [f"{format_size(r.tried)} is {percent(r.tried, r.total)}% of the card in one request"]
    if used is not None:
        evidence.append(f"the card was {percent(used, r.total)}% in use before it")
    evidence.append(shape_sentence(r.tried))
    if second == "fragmentation_clue":
        evidence.append(slack_sentence(r))
    if r.total <= SMALL_CARD_BYTES:
        evidence.append("a quarter of a small card is an ordinary tensor: the work may simply not fit")
    if has_other(r):
        evidence.append(f"{format_size(r.other or 0)} are neither free nor this process's allocator's")
    return Verdict(
        failure="single_huge",
        second=second,
        confidence="low" if used is None else "high" if r.tried * 2 >= r.total else "medium",
        rule=f"one request of a quarter of the card or more, while less than {FULL_PERCENT}% was in use",
        evidence=tuple(evidence),
        would_change=(
            f"a request below {format_size(r.total // HUGE_SHARE)}, or {FULL_PERCENT}% of the card in use",
            *(_CLUE_CHANGE if second == "fragmentation_clue" else ()),
        ),
    )


def _served_by_slack(r: TorchFigures) -> Verdict:
    """A large request that the slack would have served, on a card less than half allocated."""
    return Verdict(
        failure="fragmentation_clue",
        second="single_huge",
        confidence="medium",
        rule="reserved but unallocated exceeds a large request, and less than half of the card is allocated",
        evidence=(slack_sentence(r), f"the request is {percent(r.tried or 0, r.total or 0)}% of the card by itself"),
        would_change=_CLUE_CHANGE,
    )


def _second_to_huge(message: Message, r: TorchFigures, used: int | None) -> FailureClass | None:
    total = r.total or 0
    if has_clue(r):
        return "fragmentation_clue"
    if message.program == "pytorch-xpu":
        return "limit_not_capacity"
    if total <= SMALL_CARD_BYTES or (used is not None and used * 2 >= total):
        return "device_full"
    return "other_process" if has_other(r) else None


def _other_above_slack(message: Message, r: TorchFigures) -> Verdict | None:
    known = r.other if r.other is not None else r.other_at_most if r.slack is None else None
    return _other(message, r) if max(known or 0, r.other_at_least) > (r.slack or 0) else None


def _other(message: Message, r: TorchFigures) -> Verdict | None:
    """Something else holds more than 10% of the card and a GiB, beyond what a context explains."""
    if r.occupied is None or r.total is None:
        return None
    if r.other_at_least > other_least(r.total):
        return _named_others(r)
    if r.other is None:
        return _not_tensors(r)
    least = other_least(r.total) + (CONTEXT_TYPICAL_BYTES if r.other_includes_context else 0)
    if r.other <= least:
        return None
    sure = r.other * 100 >= r.total * 30 or (not r.other_includes_context and r.other > 2 * least)
    filled = r.held is not None and r.held * 2 >= r.total
    return Verdict(
        failure="other_process",
        second="fragmentation_clue" if has_clue(r) else "device_full" if filled else None,
        confidence="high" if sure else "medium",
        rule=f"what is neither free nor this process's exceeds {OTHER_PERCENT}% of the card and 1 GiB"
        + (", and a context's 0.5 GiB" if r.other_includes_context else ""),
        evidence=_other_evidence(r),
        would_change=(f"less than {format_size(least)} held by others", "nvidia-smi naming no other process"),
        advise=("look_at_card", "one_rank_per_gpu"),
    )


def _named_others(r: TorchFigures) -> Verdict:
    """Others that the message lists, or that must be there because this process may not have so much."""
    total, occupied, other = r.total or 0, r.occupied or 0, r.other_at_least
    evidence = [f"{format_size(occupied)} of {format_size(total)} are in use"]
    if r.holders:
        evidence.append("others on the card: " + ", ".join(p.words() for p in r.holders[:8]))
    if r.own_pid is not None and r.in_use is not None:
        evidence.append(f"PID {r.own_pid} ({format_size(r.in_use)}) is this process: torch's share and its context")
    if r.allowed is not None and r.allowed < total and other > (r.listed or 0):
        evidence.append(
            f"this process may have {format_size(r.allowed)} at most, so at least {format_size(other)} are others'"
        )
    if r.allocated is not None:
        evidence.append(f"{format_size(r.allocated)} are tensors of this process")
    filled = r.held is not None and r.held * 2 >= total
    return Verdict(
        failure="other_process",
        second="fragmentation_clue" if has_clue(r) else "device_full" if filled else None,
        confidence="high" if other * 100 >= total * 30 or other > 2 * other_least(total) else "medium",
        rule=f"others hold more than {OTHER_PERCENT}% of the card and 1 GiB",
        evidence=tuple(evidence),
        would_change=("the other processes ending: if the work then runs, this was it",),
        advise=("look_at_card", "one_rank_per_gpu"),
    )


def _not_tensors(r: TorchFigures) -> Verdict | None:
    """What this process has reserved is not printed; its tensors are less than half of what is in use."""
    rest = r.other_at_most
    if rest is None or r.allocated is None or r.total is None or rest * 2 < (r.occupied or 0):
        return None
    if rest <= other_least(r.total) + CONTEXT_TYPICAL_BYTES:
        return None
    return Verdict(
        failure="other_process",
        second="fragmentation_clue",
        confidence="low" if r.slack is None else "medium",
        rule="most of what is in use is no tensor of this process",
        evidence=(
            f"{format_size(r.occupied or 0)} in use, {format_size(r.allocated)} of it tensors of this process: "
            f"{format_size(rest)} are others', or its allocator's slack, which the text does not print",
        ),
        would_change=("the figure of what is reserved but unallocated", "nvidia-smi naming no other process"),
        advise=("look_at_card", "one_rank_per_gpu"),
    )


def _other_evidence(r: TorchFigures) -> tuple[str, ...]:
    total, other, held = r.total or 0, r.other or 0, r.held or 0
    evidence = [
        f"capacity {format_size(total)} - free {format_size(r.free or 0)} - this process {format_size(held)} = "
        f"{format_size(other)} ({percent(other, total)}% of the card)"
    ]
    if r.holders:
        evidence.append("the message lists " + ", ".join(p.words() for p in r.holders[:8]))
    if r.other_includes_context:
        evidence.append(
            "without NVML's figure for this process, its own CUDA context (0.3 to 1.2 GiB) and libraries, graphs and "
            "pools outside torch count in that difference"
        )
    if held and r.listed is None and abs(other - held) * 10 <= held:
        evidence.append("about as much again as this process has: a second worker of the same program on this card?")
    return tuple(evidence)


def _fragmented(message: Message, r: TorchFigures) -> Verdict | None:
    """Slack larger than the request, worth at least 4% of the card, on a card not nearly all allocated."""
    if r.tried is None or r.total is None or r.slack is None or r.allocated is None or r.slack <= r.tried:
        return None
    if r.slack * 100 < r.total * SLACK_PERCENT or r.allocated * 100 >= r.total * ALLOCATED_PERCENT:
        return None
    return Verdict(
        failure="fragmentation_clue",
        second="single_huge" if is_huge(r) else "other_process" if has_other(r) else "device_full",
        confidence="medium",
        rule=f"reserved but unallocated exceeds the request and {SLACK_PERCENT}% of the card, and less than "
        f"{ALLOCATED_PERCENT}% is allocated",
        evidence=(slack_sentence(r), f"allocated is {percent(r.allocated, r.total)}% of the card"),
        would_change=_CLUE_CHANGE,
    )


def _cut(message: Message, r: TorchFigures) -> Verdict | None:
    """Capacity known, free not, and this process alone does not fill the card: the rest of the text decides."""
    held = r.reserved if r.reserved is not None else r.allocated
    if r.free is not None or r.total is None or (held is not None and held * 100 >= r.total * FULL_PERCENT):
        return None
    mine = () if held is None else (f"this process holds {format_size(held)}",)
    return Verdict(
        failure="undecided",
        second="device_full",
        confidence="low",
        rule="the free memory is not in the text, and this process alone does not fill the card",
        evidence=(f"capacity {format_size(r.total)}", *mine),
        would_change=("the rest of the message",),
        advise=("paste_more", "look_at_card"),
    )


def _full(message: Message, r: TorchFigures) -> Verdict:
    """The work does not fit."""
    total = r.total or 0
    held = r.held if r.held is not None else r.allocated
    evidence = []
    if held is not None:
        evidence.append(
            f"this process holds {'at least ' if r.held is None else ''}{format_size(held)} of {format_size(total)} "
            f"({percent(held, total)}%)"
        )
    if r.free is not None:
        evidence.append(f"{format_size(r.free)} free ({percent(r.free, total)}%)")
    if r.tried is not None:
        evidence.append(f"{format_size(r.tried)} asked for{rounded_note(r.tried)}")
    if r.private is not None and r.private * 100 >= total * SLACK_PERCENT:
        evidence.append(
            f"{format_size(r.private)} are kept for CUDA graphs or other private pools, unusable for others"
        )
    second = _second_to_full(r, held, evidence)
    sure: Confidence = "low" if held is None else "high" if held * 100 >= total * FULL_PERCENT else "medium"
    return Verdict(
        failure="device_full",
        second=second,
        confidence="medium" if second == "fragmentation_clue" and sure == "high" else sure,
        rule="none of the other readings holds: what this process keeps fills the device",
        evidence=tuple(evidence),
        would_change=_full_change(r),
    )


def _second_to_full(r: TorchFigures, held: int | None, evidence: list[str]) -> FailureClass | None:
    """The reading that nearly held; adds what speaks for it."""
    if has_clue(r):
        evidence.append(slack_sentence(r) + "; too little, or on too full a card, to be the cause by itself")
        return "fragmentation_clue"
    if has_other(r):
        evidence.append(f"{format_size(r.other or 0)} are not this process's allocator's: context, display or others")
        return "other_process"
    if is_huge(r):
        evidence.append(f"the request is {percent(r.tried or 0, r.total or 0)}% of the card by itself")
        evidence.append(shape_sentence(r.tried or 0))
        return "single_huge"
    if held is None:
        evidence.append("the text does not say how much of the card is this process's")
        return "other_process"
    return None


def _full_change(r: TorchFigures) -> tuple[str, ...]:
    total = r.total or 0
    changes = [f"others holding more than {format_size(other_least(total))}"]
    if r.tried is not None and r.slack is not None:
        least = max(r.tried, total * SLACK_PERCENT // 100)
        changes.append(f"slack above {format_size(least)} with less than {ALLOCATED_PERCENT}% allocated")
    return tuple(changes)


_RULES: tuple[Callable[[Message, TorchFigures], Verdict | None], ...] = (
    _impossible,
    memory_fraction,
    larger_than_card,
    spilled,
    _no_capacity,
    free_beats_request,
    _huge,
    _other_above_slack,
    _fragmented,
    _other,
    _cut,
)
