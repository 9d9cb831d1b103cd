"""A message read together with the states that were given with it: nvidia-smi, a summary, a snapshot."""

from __future__ import annotations

from dataclasses import replace

from planner.diagnosis.result import Message, Ownership, Verdict
from planner.diagnosis.rules.thresholds import OTHER_PERCENT, other_least, percent
from planner.units import format_size

# A card half full of others leaves no doubt what a message without figures means.
_HALF = 2


def with_processes(message: Message, verdict: Verdict, own: Ownership) -> Verdict:
    """The verdict with the processes that a pasted nvidia-smi names."""
    held = sum(p.size_bytes or 0 for p in own.holders)
    named = [p for p in own.holders if p.name]
    if verdict.failure in ("host_memory", "bug", "not_a_failure") or not named:
        return verdict
    words = "nvidia-smi names " + ", ".join(p.words() for p in named[:4])
    if verdict.failure == "other_process":
        sure = own.others is None or held * 2 >= own.others
        return replace(verdict, confidence="high" if sure else verdict.confidence, evidence=(*verdict.evidence, words))
    unknown = own.tensors is None and own.total is not None and held * _HALF >= own.total
    if unknown and "tried_bytes" not in message.figures:
        return replace(
            verdict,
            failure="other_process",
            second="device_full",
            confidence="medium",
            rule=f"nvidia-smi lists other processes with {percent(held, own.total or 0)}% of the card",
            evidence=(*verdict.evidence, words),
            would_change=("one of the listed processes being the one that failed",),
            advise=("look_at_card", "one_rank_per_gpu"),
        )
    if own.total is not None and held > other_least(own.total):
        return replace(verdict, evidence=(*verdict.evidence, f"{words}: over {OTHER_PERCENT}% of the card"))
    return replace(verdict, evidence=(*verdict.evidence, words))


def with_summary(verdict: Verdict, summary: Message, judged: Verdict) -> Verdict:
    """The verdict with what the allocator's summary adds; it settles what the message leaves open."""
    allocated = summary.bytes_of("peak_allocated_bytes") or summary.bytes_of("allocated_bytes")
    evidence = list(verdict.evidence)
    if allocated is not None:
        evidence.append(f"memory_summary: peak allocated {format_size(allocated)}; {judged.rule}")
    open_question = verdict.failure == "undecided" or (verdict.confidence == "low" and verdict.failure == "device_full")
    if open_question and judged.failure == "fragmentation_clue":
        return replace(
            verdict, failure="fragmentation_clue", second="device_full", confidence="medium", evidence=tuple(evidence)
        )
    return replace(verdict, evidence=tuple(evidence))


def with_snapshot(verdict: Verdict, snapshot: Message, judged: Verdict) -> Verdict:
    """The verdict with the snapshot's: its state at the oom event proves or refutes fragmentation."""
    if "tried_bytes" not in snapshot.figures or verdict.failure in ("host_memory", "bug"):
        return replace(verdict, evidence=(*verdict.evidence, *judged.evidence[:2]))
    evidence = (*judged.evidence, *verdict.evidence)
    if verdict.failure in ("other_process", "limit_not_capacity"):
        return replace(verdict, evidence=evidence)
    return replace(
        verdict,
        failure=judged.failure,
        second=judged.second,
        confidence=judged.confidence,
        rule=f"the snapshot at the failure: {judged.rule}",
        evidence=evidence,
        advise=(*judged.advise, *verdict.advise),
    )
