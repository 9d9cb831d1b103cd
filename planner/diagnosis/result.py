"""What a diagnosis consists of. Sizes are in bytes; values are frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from planner.diagnosis.sizes import Figure, Value, is_sane
from planner.units import format_size
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
    "bug": "no lack of memory: an error in the program, its builds or its surroundings",
    "not_a_failure": "a warning that the program survives; look for what stopped it elsewhere",
    "undecided": "the text does not say enough to tell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that holds memory of a device; None where the text does not say."""

    pid: int | None
    size_bytes: int | None
    name: str = ""

    def words(self) -> str:
        """ "PID 40112 (python3, 21.8 GiB)"."""
        inner = [part for part in (self.name, "" if self.size_bytes is None else format_size(self.size_bytes)) if part]
        return ("a process" if self.pid is None else f"PID {self.pid}") + (f" ({', '.join(inner)})" if inner else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Whose the memory of a device is, as far as the inputs say; sizes in bytes, None where they do not.

    Attributes:
        tensors, unused: what this process's torch has allocated, and has reserved besides.
        outside: what this process has beyond torch: context, graphs, other libraries.
        others: what other processes have; `holders` names them.
        free_gpus: (index, bytes in use, capacity) of other GPUs that are nearly empty.
    """

    total: int | None = None
    free: int | None = None
    tensors: int | None = None
    unused: int | None = None
    outside: int | None = None
    others: int | None = None
    own_pid: int | None = None
    holders: tuple[Process, ...] = ()
    free_gpus: tuple[tuple[int, int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The shares under plain names; what is not known is left out."""
        names = ("total", "free", "tensors", "unused", "outside", "others")
        sizes = {f"{name}_bytes": getattr(self, name) for name in names if getattr(self, name) is not None}
        row: dict[str, Any] = dict(sizes)
        if self.own_pid is not None:
            row["own_pid"] = self.own_pid
        if self.holders:
            row["holders"] = [{"pid": h.pid, "name": h.name, "size_bytes": h.size_bytes} for h in self.holders]
        if self.free_gpus:
            row["free_gpus"] = [{"index": i, "in_use_bytes": u, "total_bytes": t} for i, u, t in self.free_gpus]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of one program, as read from the text.

    Attributes:
        kind: the name of the pattern that identifies it; `kinds` has all the patterns that matched.
        figures: what the text prints, and only that.
        device: the device's number in the text; an ordinal within the process for torch.
        context: what the lines around it say (phase, engine, settings), name to value.
        repeated: how many times the same message occurs in the input.
        devices: the devices of all its repeats, where several ranks fail in the same way.
        processes: processes with memory on the device, as the text lists them.
        stated_total_bytes: the device's capacity as the user stated it, for a text that prints none.
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
    devices: tuple[int, ...] = ()
    processes: tuple[Process, ...] = ()
    stated_total_bytes: int | None = None

    @property
    def capacity(self) -> int | None:
        """The device's memory as printed, else as stated; None where neither says a possible size."""
        printed = self.bytes_of("total_bytes")
        return printed if is_sane(printed) and printed else self.stated_total_bytes

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
    """Something to do.

    Attributes:
        name: its word in the list of actions.
        setting: what to type or set, in the spelling of the program that failed.
        command: a command that looks; never one that is run here.
    """

    do: str
    why: str
    command: str | None = None
    name: str = ""
    setting: str | None = None


class BesidePlan(Protocol):
    """What the plan of a workload expected at a finding (expectation.beside_plan.Expectation)."""

    def to_json(self) -> dict[str, Any]:
        """The expectation under the names of the JSON contract."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One diagnosed message, summary or snapshot.

    Attributes:
        plan: what the plan of a stated workload expected there.
        headline, whose: what happened, and whose the memory was, in a sentence each.
    """

    message: Message
    verdict: Verdict
    actions: tuple[Action, ...] = ()
    cautions: tuple[str, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    plan: BesidePlan | None = None
    ownership: Ownership = field(default_factory=Ownership)
    headline: str = ""
    whose: str = ""

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
            "headline": self.headline,
            "whose_memory": self.whose,
            "class": verdict.failure,
            "second_class": verdict.second,
            "confidence": verdict.confidence,
            "rule": verdict.rule,
            "figures": {k: list(v) if isinstance(v, tuple) else v for k, v in self.figures.items()},
            "derived": dict(verdict.derived),
            "device": message.device,
            "evidence": list(verdict.evidence),
            "would_change": list(verdict.would_change),
            "actions": [
                {"name": a.name, "do": a.do, "setting": a.setting, "why": a.why, "command": a.command}
                for a in self.actions
            ],
            "cautions": list(self.cautions),
            "source": message.source,
            "line": message.line,
            "repeated": message.repeated,
            "devices": list(message.devices),
            "memory": self.ownership.to_json(),
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
