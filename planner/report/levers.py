"""Levers and the sets that fit, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from planner.contract.engine import command_line
from planner.contract.lever import Changes, Effect, LeverSet, Setting
from planner.contract.plan import VERDICTS, ServingPlan
from planner.levers.advice import Advice
from planner.levers.goal import Solved
from planner.levers.relief import Relief
from planner.report.printer import Heading, Width, printed, table
from planner.units import format_size, gib


def levers_json(advice: Advice) -> dict[str, object]:
    """The contract's "levers" and "plans", and what belongs to them; sizes in bytes."""
    found: dict[str, object] = {
        "levers": [_effect_json(effect) for effect in advice.levers],
        "plans": [_set_json(one) for one in advice.plans],
    }
    if advice.relief is not None:
        found["relief"] = _relief_json(advice.relief)
    if advice.solved is not None:
        found["goal"] = _goal_json(advice.solved)
    return found


def _setting_json(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "phase": setting.phase,
        "from": setting.before,
        "to": setting.after,
        "flag": setting.flag,
        "detail": setting.detail,
    }


def _effect_json(effect: Effect) -> dict[str, object]:
    return _setting_json(effect.setting) | {
        "saves_bytes": effect.saves_bytes,
        "verdict": effect.verdict,
        "fits_alone": effect.fits_alone,
        "cost": effect.setting.kind.cost,
    }


def _set_json(one: LeverSet) -> dict[str, object]:
    return {
        "levers": [_setting_json(setting) | {"cost": setting.kind.cost} for setting in one.settings],
        "verdict": one.verdict,
        "cost": one.cost,
        "saves_bytes": one.saves_bytes,
        "command": one.command,
    }


def _relief_json(relief: Relief) -> dict[str, object]:
    return {
        "terms_beyond_the_card": [
            {"name": term.name, "bytes": term.size_bytes, "excess_bytes": term.excess_bytes} for term in relief.excess
        ],
        "sum_excess_bytes": relief.sum_excess_bytes,
        "gpu": relief.gpu.name if relief.gpu else None,
        "gpu_flag": relief.card_flag or None,
        "cards": relief.cards or None,
        "cards_flag": relief.layout_flag or None,
    }


def _goal_json(solved: Solved) -> dict[str, object]:
    return {
        "what": solved.goal.what,
        "at_requests": solved.goal.users,
        "value": solved.value or None,
        "flag": solved.flag or None,
        "verdict": solved.plan.verdict if solved.plan else None,
        "command": command_line(solved.plan) if isinstance(solved.plan, ServingPlan) else None,
    }


def levers_table(advice: Advice, *, markdown: bool = False, width: Width = "terminal") -> str:
    """What to change: single levers, sets that fit, the terms beyond the card, the goal's answer."""
    parts, room = [], None if markdown else width
    if advice.solved is not None:
        parts.append(printed([_goal_line(advice.solved)], room))
    if advice.levers:
        parts.append(_levers(advice.levers, markdown=markdown, width=width))
    if advice.plans:
        lines = ["what fits, cheapest first (each change is needed):"]
        for number, one in enumerate(advice.plans, start=1):
            flags = " ".join(setting.flag for setting in one.settings)
            saves = f"saves {gib(one.saves_bytes)} GiB per GPU"
            lines.append(f"  {number}. {flags}   [{VERDICTS[one.verdict]}; costs {one.cost}; {saves}]")
        parts.append(printed(lines, room))
    elif advice.relief is not None:
        parts.append("no set of these changes fits")
    if advice.relief is not None:
        parts.append(printed(_relief_lines(advice.relief), room))
    parts += [printed([f"note: {note}"], room) for note in advice.notes]
    return "\n\n".join(parts)


def _levers(effects: Sequence[Effect], *, markdown: bool, width: Width) -> str:
    rows = [
        (
            effect.setting.flag,
            effect.setting.before,
            gib(effect.saves_bytes),
            VERDICTS[effect.verdict],
            effect.setting.kind.cost,
            effect.setting.phase,
            effect.setting.detail,
        )
        for effect in effects
    ]
    headings = [
        Heading(title="change one thing"),
        Heading(title="from", importance=2),
        Heading(title="GiB per GPU", right=True),
        Heading(title="then"),
        Heading(title="costs"),
        Heading(title="acts at", importance=3),
        Heading(title="what it means", importance=1),
    ]
    return table(rows, headings, markdown=markdown, width=width)


def _relief_lines(relief: Relief) -> list[str]:
    lines = [
        f"{term.name} alone needs {format_size(term.size_bytes)}, {format_size(term.excess_bytes)} more than the card"
        for term in relief.excess
    ]
    if not lines and relief.sum_excess_bytes:
        lines.append(f"no term alone exceeds the card; together they need {format_size(relief.sum_excess_bytes)} more")
    if relief.gpu is not None:
        lines.append(f"{_as_asked(relief.card)}, it fits one {relief.gpu.name} ({relief.card_flag})")
    else:
        lines.append("as it is, it fits no listed card")
    if relief.cards > 1:
        lines.append(f"{_as_asked(relief.layout)}, it fits {relief.cards} of this card ({relief.layout_flag})")
    return lines


def _as_asked(changes: Changes) -> str:
    """Whether anything but the cards changes."""
    return "with that memory fraction" if "gpu_memory_utilization" in changes else "as it is"


def _goal_line(solved: Solved) -> str:
    at = f" at {solved.goal.users:,} requests" if solved.goal.users else ""
    if solved.plan is None:
        return f"goal {solved.goal.what}{at}: nothing fits"
    return f"goal {solved.goal.what}{at}: {solved.value} ({solved.flag})"
