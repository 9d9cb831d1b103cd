"""What was read from a launch form, for people and as the JSON contract."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.contract.plan import VERDICTS
from planner.launches.record import Launch, LaunchPlan, Value
from planner.report.printer import Width, command, printed
from planner.report.rows import JSON_SCHEMA
from planner.report.verdict import coloured
from planner.units import format_size


@dataclass(slots=True)
class Planned:
    """One server or run with what `serve` or `train` says of it.

    Args:
        verdict: "" where it stands in `text` alone.
        message: why nothing more can be said, or what else stops it.
        words: of the command that asks the same.
        needed: bytes that do not depend on the card, by name.
    """

    plan: LaunchPlan
    verdict: str
    status: int
    message: str | None = None
    text: str = ""
    words: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)

    @property
    def command(self) -> str | None:
        """The line to go on from."""
        return shlex.join(["vram-planner", self.plan.kind, *self.words]) if self.words else None


def launches_json(launches: Sequence[Launch], planned: Sequence[Planned]) -> dict[str, Any]:
    """Everything that was read, and each plan of it as `serve` or `train` prints it."""
    return {
        "schema": JSON_SCHEMA,
        "launch": [launch_json(launch) for launch in launches],
        "plans": [
            {
                "name": one.plan.name,
                "kind": one.plan.kind,
                "model": one.plan.model,
                "verdict": one.verdict,
                "message": one.message,
                "command": one.command,
                "needed": {f"{name}_bytes": size for name, size in one.needed.items()},
                "result": one.result or None,
            }
            for one in planned
        ],
        "verdict": _worst(launches, planned),
    }


def _worst(launches: Sequence[Launch], planned: Sequence[Planned]) -> str:
    """The verdict that decides the exit status."""
    unread = any(launch.error is not None or not launch.plans for launch in launches)
    order = ("does_not_fit", "refused", "unknown", "tight", "fits")
    found = [("does_not_fit" if one.status == 1 else one.verdict) for one in planned]
    found += ["unknown"] if unread or not planned else []
    return next((verdict for verdict in order if verdict in found), "unknown")


def launches_text(
    launches: Sequence[Launch], planned: Sequence[Planned], *, colour: bool = False, width: Width = "terminal"
) -> str:
    """What was read and what comes of it, source by source."""
    lines: list[str] = []
    for launch in launches:
        lines += [printed(launch_table(launch).split("\n"), width), ""]
        for one in planned:
            if any(one.plan is plan for plan in launch.plans):
                lines += [*_planned_lines(one, colour=colour), ""]
    return "\n".join(lines).rstrip()


def _planned_lines(one: Planned, *, colour: bool) -> list[str]:
    lines = []
    if one.text:
        lines += [one.text, ""]
    if one.message is not None:
        verdict = "does_not_fit" if one.status == 1 else one.verdict or "unknown"
        word = coloured(verdict) if colour else VERDICTS[verdict]
        lines.append(printed([f"{word}: {one.plan.model or one.plan.tool}: {one.message}"]))
    lines += [f"  {name.replace('_', ' ')} {format_size(size)} per GPU" for name, size in one.needed.items()]
    return [*lines, *([command(one.command)] if one.command else [])]


def launch_csv(launches: Sequence[Launch]) -> str:
    """Every input that was read as CSV: source, plan, name, value, line, how."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("file", "form", "plan", "tool", "model", "input", "value", "line", "how"))
    for launch in launches:
        for index, plan in enumerate(launch.plans):
            for name, value in plan.inputs.items():
                head = (launch.file, launch.form, plan.name or index, plan.tool, plan.model)
                writer.writerow((*head, name, shown(value.value), value.line, value.how))
    return buffer.getvalue().rstrip("\n")


def launch_json(launch: Launch) -> dict[str, Any]:
    """One source as plain values: form, outcome, plans with each input's place, needs, unread, notes, error."""
    return {
        "file": launch.file,
        "form": launch.form,
        "outcome": launch.outcome,
        "plans": [plan_json(plan) for plan in launch.plans],
        "needs": list(launch.needs),
        "unread": list(launch.unread),
        "notes": list(launch.notes),
        "error": None if launch.error is None else {"exit": 2, "message": launch.error},
    }


def plan_json(plan: LaunchPlan) -> dict[str, Any]:
    """One server or run; sizes in bytes."""
    found: dict[str, Any] = {
        "kind": plan.kind,
        "engine" if plan.kind == "serve" else "framework": plan.tool,
        "version": plan.version,
        "model": plan.model,
        "card": plan.card,
        "card_key": plan.card_key,
        "gpus": plan.gpus,
        "replicas": plan.replicas,
        "inputs": {name: _placed(value) for name, value in plan.inputs.items()},
        "also": {name: _placed(value) for name, value in plan.further.items()},
        "defaults": dict(plan.defaults),
        "host": dict(plan.host),
        "environment": list(plan.environment),
    }
    if plan.kind == "train":
        found["nodes"] = plan.nodes
    for name in ("name", "device", "variant", "version_source", "model_source"):
        value = getattr(plan, name)
        if value is not None:
            found[name] = value
    if plan.model_at is not None:
        found["model_at"] = {"file": plan.model_at.file, "line": plan.model_at.line, "how": plan.model_at.how}
    return found


def _placed(value: Value) -> dict[str, Any]:
    return {"value": value.value, "file": value.file, "line": value.line, "how": value.how}


def launch_table(launch: Launch) -> str:
    """What was recognised and read, each value with its line; what was not read, and what is missing."""
    counted = f"{len(launch.plans)} plan{'s' if len(launch.plans) != 1 else ''}"
    lines = [f"{launch.file or 'the text'}: {launch.form}, {counted}"]
    for plan in launch.plans:
        lines += ["", *_plan_lines(plan)]
    for title, items in (("needed", launch.needs), ("not read", launch.unread), ("note", launch.notes)):
        lines += ["", *(f"{title}: {one}" for one in items)] if items else []
    return "\n".join(lines)


def _plan_lines(plan: LaunchPlan) -> list[str]:
    release = f" {plan.version}" if plan.version else ""
    variant = f" ({plan.variant})" if plan.variant else ""
    head = f"{plan.name}: " if plan.name else ""
    verb = "serves" if plan.kind == "serve" else "trains"
    lines = [f"{head}{plan.tool}{variant}{release} {verb} {plan.model or 'a model that is not stated'}"]
    cards = f"{plan.gpus if plan.gpus is not None else '?'} x {plan.card or 'a card that is not stated'}"
    places = f", {plan.nodes} nodes" if plan.nodes > 1 else ""
    copies = f", {plan.replicas} replicas" if plan.replicas != 1 else ""
    lines.append(f"  on {cards}{places}{copies}")
    rows = [*plan.inputs.items(), *plan.further.items()]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        how = "" if value.how == "stated" else f", {value.how}"
        lines.append(f"  {name:<{width}}  {shown(value.value)}  (line {value.line}{how})")
    for name, default in plan.defaults.items():
        lines.append(f"  {name:<{width}}  {shown(default)}  (default of {plan.tool})")
    for name, size in plan.host.items():
        text = format_size(size) if not isinstance(size, bool) else "yes"
        lines.append(f"  host: {name.removesuffix('_bytes').replace('_', ' ')} {text}")
    return lines


def shown(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(one) for one in value)[:200]
    return str(value)[:200]
