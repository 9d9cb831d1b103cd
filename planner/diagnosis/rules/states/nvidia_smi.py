"""What the state of a card says by itself: whose it is, and how full."""

from __future__ import annotations

from planner.diagnosis.result import FailureClass, Message, Verdict
from planner.diagnosis.rules.thresholds import OTHER_PERCENT, other_least, percent
from planner.units import format_size


def judge_smi(message: Message) -> Verdict:
    """What the card's state says by itself: whose it is, and how full; not whether anything failed."""
    total, used = message.bytes_of("total_bytes"), message.bytes_of("in_use_bytes")
    listed = message.figures.get("process_list")
    sizes = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    evidence = (
        []
        if total is None or used is None
        else [f"{format_size(used)} of {format_size(total)} in use ({percent(used, total)}%)"]
    )
    if sizes:
        evidence.append(f"{len(sizes)} compute processes: " + ", ".join(p.words() for p in message.processes[:8]))
    twins = any(a and abs(a - b) * 50 <= a for i, a in enumerate(sizes) for b in sizes[i + 1 :][:8])
    if twins:
        evidence.append("two processes of the same size: a second worker of the same program?")
    if message.context.get("processes_without_size"):
        evidence.append("sizes that the driver does not tell (WDDM, permissions, MIG) are left out")
    failure, second, rule = _judge(total, used, sizes)
    return Verdict(
        failure=failure,
        second=second,
        confidence="low",
        rule=rule,
        evidence=tuple(evidence),
        would_change=("the state at the moment of the error: this is another moment",),
        advise=("look_at_card",) if failure == "other_process" else (),
        caution=("do_not_kill",),
    )


def _judge(
    total: int | None, used: int | None, sizes: tuple[int, ...]
) -> tuple[FailureClass, FailureClass | None, str]:
    if len(sizes) > 1:
        return (
            "other_process",
            "device_full",
            "more than one compute process is on the card; which is yours, it cannot say",
        )
    if total is None or used is None:
        return "undecided", None, "processes without the card's capacity"
    if used > other_least(total) and not sizes:
        return (
            "other_process",
            "undecided",
            f"more than {OTHER_PERCENT}% in use and no process listed: a zombie, another container, or names withheld",
        )
    if used * 100 >= total * (100 - OTHER_PERCENT):
        return "device_full", None, "nearly all of the card is in use, by one process"
    return "undecided", None, "the card's state shows no failure"
