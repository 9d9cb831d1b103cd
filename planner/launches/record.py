"""What a reader gives back: what was seen, where each value stands, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.errors import PlannerError

Outcome = Literal["plan", "partial", "error"]


class LaunchError(PlannerError):
    """A source that cannot be read as what it is: broken, too large, a template, or without a model.

    Args:
        form: the form that the text has, as far as it can be told.
        needs: what would have to be given for it to be read.
    """

    code = "launch"

    def __init__(self, message: str, *, form: str = "unknown", needs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.form = form
        self.needs = needs


@dataclass(frozen=True, slots=True)
class Value:
    """A value, the place where it stands, and how it came to be (stated, a variable's default, ...)."""

    value: Any
    line: int
    file: str = ""
    how: str = "stated"


@dataclass(slots=True, kw_only=True)
class LaunchPlan:
    """One server or one training run, as its launch states it.

    Args:
        tool: the engine that serves, or the framework that trains.
        version: of the tool; None where it is not stated.
        model: as written, or where it was downloaded from; None: not stated.
        card: as written; card_key: the id in the table of cards, None where it says none or several.
        gpus: None: not stated. A server's are those of one replica, a run's are all of it.
        replicas: equal servers; "1..3" when it scales.
        inputs: stated values under the tool's own option names.
        further: options that are handed to the planner as they stand, without being inputs of their own.
        defaults: the tool's own defaults where they are not the planner's.
        host: bytes of host memory: limit, request, shared memory, buffers.
        device: ids of the devices it is pinned to, separated by commas.
        variant: a program that is planned as another one.
        beside: names of servers that run on the same device at the same time.
        sees_all: it is given every device of its machine.
        open: inputs that are stated and whose value is not known.
        environment: names of the variables that were set, never their values.
    """

    kind: Literal["serve", "train"]
    tool: str
    version: str | None = None
    version_source: str | None = None
    model: str | None = None
    model_source: str | None = None
    model_at: Value | None = None
    card: str | None = None
    card_key: str | None = None
    gpus: int | None = None
    replicas: int | str = 1
    nodes: int = 1
    inputs: dict[str, Value] = field(default_factory=dict)
    further: dict[str, Value] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    host: dict[str, int | bool] = field(default_factory=dict)
    name: str | None = None
    device: str | None = None
    variant: str | None = None
    environment: tuple[str, ...] = ()
    gpus_stated: bool = False
    beside: tuple[str, ...] = ()
    open: list[str] = field(default_factory=list)
    sees_all: bool = False

    def get(self, name: str, default: Any = None) -> Any:
        """The stated value of an input."""
        found = self.inputs.get(name)
        return default if found is None else found.value


@dataclass(slots=True, kw_only=True)
class Launch:
    """Everything that one source says: its form, the plans in it, and what stands in the way of more."""

    file: str
    form: str
    plans: list[LaunchPlan] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def outcome(self) -> Outcome:
        if self.error is not None or not self.plans:
            return "error"
        return "partial" if self.needs else "plan"

    def need(self, name: str, why: str, *, settle: str | None = None) -> None:
        """A thing that must be asked for; `settle` is the name that --set takes."""
        hint = f"; give --set {settle}=VALUE" if settle else ""
        _add(self.needs, f"{name}: {why}{hint}")

    def skip(self, what: str, *, matters: bool) -> None:
        """A thing that was seen and not used."""
        _add(self.unread, f"{what} ({'memory may depend on it' if matters else 'no memory input'})")

    def note(self, text: str) -> None:
        """A thing to say."""
        _add(self.notes, text)


def _add(items: list[str], text: str) -> None:
    if text not in items and len(items) < 200:
        items.append(text if len(text) <= 400 else text[:397] + "...")


@dataclass(slots=True, kw_only=True)
class Settings:
    """What the caller gives beside the source.

    Args:
        values: --set NAME=VALUE.
        beside: files that lie beside the source, by name; read only when the source names them.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
