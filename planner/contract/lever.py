"""A lever: one input of a plan changed, and the plan run again.

Nothing here knows a memory term. What a lever saves is the difference between two plans.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol, TypeVar

from planner.errors import UsageError

Value = int | float | str | bool
Changes = Mapping[str, object]
Plan = TypeVar("Plan")

COSTS: Final = ("nothing", "inputs", "concurrency", "context", "quality", "speed", "cards")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A row of the table of levers.

    Args:
        name: the lever, spelled as the option it changes.
        input: the field that it changes, which `--keep` protects.
        rank: place in the order of cost, 1 the cheapest; levers of one rank cost alike.
        step: where its first value stands among the values of its group, for weighing one against another.
        group: levers of one group exclude each other.
        phase: when it acts: "loading", "profiling", "cache sizing", "graph capture", "run time".
        cost: one of COSTS.
        detail: what pulling it means, in a few words.
    """

    name: str
    input: str
    rank: int
    step: int
    group: str
    phase: str
    cost: str
    detail: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A kind of change with the values it could take for one question.

    Args:
        before: the present setting.
        values: what it could be set to, the mildest first.
        changes: the inputs that a value changes.
        flag: what to paste for a value.
        after: the value as text.
        detail: overrides the kind's.
        phase: overrides the kind's.
        renew: the lever with its values as they are on another plan; None: they depend on nothing else.
        helps: whether pulling it goes the right way for what a plan is short of; None: always.
    """

    kind: Kind
    before: str
    values: Sequence[Value]
    changes: Callable[[Value], Changes]
    flag: Callable[[Value], str]
    after: Callable[[Value], str] = str
    detail: str = ""
    phase: str = ""
    renew: Callable[[Any], Lever | None] | None = None
    helps: Callable[[Any], bool] | None = None

    def set_to(self, value: Value) -> Setting:
        """The lever pulled to one of its values."""
        return Setting(
            kind=self.kind,
            before=self.before,
            after=self.after(value),
            flag=self.flag(value),
            changes=self.changes(value),
            detail=self.detail or self.kind.detail,
            phase=self.phase or self.kind.phase,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A lever pulled to one value: the setting before and after, what to paste, the inputs it changes."""

    kind: Kind
    before: str
    after: str
    flag: str
    changes: Changes
    detail: str
    phase: str

    @property
    def name(self) -> str:
        """The lever's name."""
        return self.kind.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one setting does alone.

    Args:
        saves_bytes: on the fullest rank: what the plan before needs less what the plan after needs; for the memory
            fraction, what it moves to where it is short.
        verdict: of the plan after; fits_alone: it counts as fitting.
    """

    setting: Setting
    saves_bytes: int
    verdict: str
    fits_alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverSet:
    """Settings that together make the plan fit, none of which can be left out.

    Args:
        verdict: of the plan with all of them.
        cost: the kinds of cost, worst last.
        saves_bytes: on the fullest rank, with all of them.
        command: the engine's command line with all of them.
    """

    settings: tuple[Setting, ...]
    verdict: str
    cost: str
    saves_bytes: int
    command: str


class Question(Protocol[Plan]):
    """What was asked, and how to ask it again with other inputs."""

    def ask(self, changes: Changes) -> Plan:
        """The plan with some inputs changed; a PlannerError where the change is not possible."""
        ...

    def try_ask(self, changes: Changes) -> Plan | None:
        """The same, or None where the change is not possible."""
        ...

    def fits(self, changes: Changes) -> bool:
        """Whether the plan with these changes counts as fitting."""
        ...

    def accepts(self, plan: Plan) -> bool:
        """Whether a plan counts as fitting."""
        ...

    def verdict(self, plan: Plan) -> str:
        """The plan's verdict."""
        ...

    def saving(self, before: Plan, after: Plan) -> int:
        """Bytes that `after` needs less than `before` on the fullest rank."""
        ...

    def command(self, plan: Plan) -> str:
        """The command that realises a plan; empty where there is none."""
        ...

    def cards(self, plan: Plan) -> tuple[int, int]:
        """How many cards a plan takes, and how many pipeline stages."""
        ...


@cache
def kinds(table: str) -> dict[str, Kind]:
    """The levers of a table ("planner.engines.vllm.tables:levers.csv") by name, in its order; "" has none."""
    if not table:
        return {}
    package, _, name = table.partition(":")
    text = files(package).joinpath(name).read_text("utf-8")
    return {
        row["name"]: Kind(**{key: int(cell) if key in ("rank", "step") else cell for key, cell in row.items()})  # type: ignore[arg-type]
        for row in csv.DictReader(text.splitlines())
    }


def kept_in(table: str, names: Iterable[str], *, also: Mapping[str, str] | None = None) -> frozenset[str]:
    """The inputs that `--keep` forbids touching, from option or lever names of a table.

    Args:
        also: further names for inputs.

    Raises:
        UsageError: a name that no lever changes; names the nearest.
    """
    known = {kind.input.replace("_", "-"): kind.input for kind in kinds(table).values()}
    known |= {kind.name: kind.input for kind in kinds(table).values()} | dict(also or {})
    kept = set()
    for name in names:
        word = name.strip().lower().lstrip("-").replace("_", "-")
        if word not in known:
            import difflib  # only a wrong name needs it

            near = difflib.get_close_matches(word, known, n=1)
            one_of = f"; expected one of {', '.join(sorted(known))}" if table else "; this engine has no levers"
            hint = f"; did you mean {near[0]}?" if near else one_of
            raise UsageError(f"--keep: no lever changes {word[:40]!r}{hint}", field="keep")
        kept.add(known[word])
    return frozenset(kept)
