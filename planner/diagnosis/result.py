"""What a diagnosis consists of. Sizes are in bytes; values are frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from planner.diagnosis.sizes import Figure, Value
from planner.version import SCHEMA

FailureClass = Literal[
    "single_huge",
    "fragmentation_clue",
    "device_full",
    "other_process",
    "engine_budget",
    "host_memory",
    "limit_not_capacity",
    "bug",
    "not_a_failure",
    "undecided",
]
Confidence = Literal["high", "medium", "low"]

CLASS_SENTENCES: Mapping[FailureClass, str] = {
    "single_huge": "one request is a large part of the card by itself",
    "fragmentation_clue": "the allocator holds more unused memory than was asked for (a clue, not a proof)",
    "device_full": "the work does not fit: the device is full of what this process keeps",
    "other_process": "something else holds a large part of the card",
    "engine_budget": "the engine's own arithmetic refuses; the card itself need not be full",
    "host_memory": "host memory (RAM) ran out, not the GPU's",
    "limit_not_capacity": "a limit refused the request while the device had room for it",
    "bug": "the size or state is impossible: an error in the program, not a lack of memory",
    "not_a_failure": "a warning that the program survives; look for what stopped it elsewhere",
    "undecided": "the text does not say enough to tell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of one program, as read from the text.

    Attributes:
        kind: the name of the pattern that identifies it; `kinds` has all the patterns that matched.
        figures: what the text prints, and only that.
        device: the device's number in the text; an ordinal within the process for torch.
        context: what the lines around it say (phase, engine, settings), name to value.
        repeated: how many times the same message occurs in the input.
    """

    program: str
    kind: str
    kinds: frozenset[str] = frozenset()
    version_hint: str | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    device: int | None = None
    text: str = ""
    source: str = ""
    line: int | None = None
    offset: int = 0
    context: Mapping[str, str] = field(default_factory=dict)
    repeated: int = 1

    def bytes_of(self, name: str) -> int | None:
        """The figure as an int of bytes (or tokens), None where the text does not print it."""
        figure = self.figures.get(name)
        return figure.value if figure is not None and isinstance(figure.value, int) else None

    def number(self, name: str) -> float | None:
        """The figure as a number, None where the text does not print it."""
        figure = self.figures.get(name)
        return figure.value if figure is not None and isinstance(figure.value, int | float) else None

    def margin_of(self, name: str) -> int:
        """Half a unit of the last printed decimal, in bytes; 0 for exact figures."""
        figure = self.figures.get(name)
        return 0 if figure is None else figure.margin_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A class with what it rests on.

    Attributes:
        rule: the rule that decided, in a phrase.
        would_change: what, had it been different or known, would have given another answer.
        advise: names of actions in actions.json that this rule adds, before those of the class.
        caution: names of cautions in actions.json, likewise.
        derived: what follows from the figures by arithmetic (a fitting context), sizes in bytes.
    """

    failure: FailureClass
    confidence: Confidence
    rule: str
    second: FailureClass | None = None
    evidence: tuple[str, ...] = ()
    would_change: tuple[str, ...] = ()
    advise: tuple[str, ...] = ()
    caution: tuple[str, ...] = ()
    derived: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do: what, when it applies and why, and a command that looks (never one that is run here)."""

    do: str
    why: str
    command: str | None = None


class BesidePlan(Protocol):
    """What the plan of a workload expected at a finding (expectation.beside_plan.Expectation)."""

    def to_json(self) -> dict[str, Any]:
        """The expectation under the names of the JSON contract."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One diagnosed message, summary or snapshot; `plan` is what the plan of a stated workload expected there."""

    message: Message
    verdict: Verdict
    actions: tuple[Action, ...] = ()
    cautions: tuple[str, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    plan: BesidePlan | None = None

    @property
    def failure(self) -> FailureClass:
        """The class of the first reading."""
        return self.verdict.failure

    @property
    def figures(self) -> dict[str, Value]:
        """Name to value of what the text prints; sizes in bytes."""
        return {name: figure.value for name, figure in self.message.figures.items()}

    def to_json(self) -> dict[str, Any]:
        """The finding under the names of the JSON contract."""
        message, verdict = self.message, self.verdict
        row: dict[str, Any] = {
            "program": message.program,
            "version_hint": message.version_hint,
            "class": verdict.failure,
            "second_class": verdict.second,
            "confidence": verdict.confidence,
            "rule": verdict.rule,
            "figures": {k: list(v) if isinstance(v, tuple) else v for k, v in self.figures.items()},
            "derived": dict(verdict.derived),
            "device": message.device,
            "evidence": list(verdict.evidence),
            "would_change": list(verdict.would_change),
            "actions": [{"do": a.do, "why": a.why, "command": a.command} for a in self.actions],
            "cautions": list(self.cautions),
            "source": message.source,
            "line": message.line,
            "repeated": message.repeated,
            "context": dict(message.context),
            "text": message.text,
        }
        if self.tables:
            row["tables"] = dict(self.tables)
        if self.plan is not None:
            row["plan"] = self.plan.to_json()
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that was found in the inputs: failures first, warnings after them."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `--format json` prints."""
        return {"schema": SCHEMA, "findings": [f.to_json() for f in self.findings], "notes": list(self.notes)}
