"""The first screen: what happened, whose memory it was, what to do first and second; at most 18 lines of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from planner.diagnosis.headline import sureness
from planner.diagnosis.result import Action, Diagnosis, Finding
from planner.report.diagnosis.lines import typed, wrapped

MOST_LINES = 18
_HEAD_LINES = 3
_WHOSE_LINES = 2


def first_screen(diagnosis: Diagnosis, *, more: bool) -> list[str]:
    """The lines for the finding to mend first; the others in a line each as far as there is room.

    Args:
        more: the rest follows, so nothing points to it.
    """
    finding, others = diagnosis.findings[0], diagnosis.findings[1:]
    lines = wrapped(finding.headline, most=_HEAD_LINES)
    owner = _plan_line(finding) or finding.whose
    if owner:
        lines += wrapped(owner, most=_WHOSE_LINES)
    lines.append("")
    for action, word in zip(finding.actions[:2], ("Do first", "Then"), strict=False):
        lines += _action(action, word)
    lines.append("")
    tail = wrapped(f"How sure: {sureness(finding)}", most=2)
    if not more:
        tail.append("More (figures, reasons, cautions, further remedies): add --more")
    room = MOST_LINES - len(lines) - len(tail)
    return [*lines, *_also(others, room), *tail][:MOST_LINES]


def _plan_line(finding: Finding) -> str:
    """What the plan of the stated workload says, where there is one."""
    if finding.plan is None:
        return ""
    document = finding.plan.to_json()
    if document["weights_bytes"] > document["card_bytes"]:
        return ""
    words = {"fits": "fits this card", "tight": "is tight on this card"}.get(
        document["verdict"], "does not fit this card"
    )
    return f"The plan of the stated workload {words}. {finding.whose}"


def _action(action: Action, word: str) -> list[str]:
    lines = wrapped(f"{word}: {action.do}", rest="  ", most=2)
    shown = action.setting or action.command
    return lines + (typed(shown) if shown else [])


def _also(others: Sequence[Finding], room: int) -> list[str]:
    """The other findings, one line each; how many there are more."""
    if not others or room < 1:
        return []
    shown = others if len(others) <= room else others[: room - 1]
    lines = [wrapped(f"Also: {one.headline}", most=1)[0] for one in shown]
    if len(shown) < len(others):
        lines.append(f"Also: {len(others) - len(shown)} further findings")
    return lines
