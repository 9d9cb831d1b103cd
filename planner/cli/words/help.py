"""Help from the declaration: the options that matter first, grouped, each with its default."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from planner.contract.engine import Engine, engine_names
from planner.contract.inputs import Input, inputs_of, plain

_INDENT = 30


@dataclass(frozen=True, slots=True)
class Declared:
    """What a command takes: the records of its inputs, the engine whose inputs are among them, commands below it."""

    records: tuple[type, ...] = ()
    engine: Engine | None = None
    commands: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Every input, in order."""
        return tuple(one for record in self.records for one in inputs_of(record))


# set while a command is asked what it takes, in place of printing it
_ASKED: ContextVar[list[Declared] | None] = ContextVar("_ASKED", default=None)


def declared_by(command: Callable[[Sequence[str]], object], words: Sequence[str]) -> Declared:
    """What the help of a command with these words lists; a command tells nobody else what it takes."""
    told: list[Declared] = []
    token = _ASKED.set(told)
    try:
        command([*words, "--help-all"])
    finally:
        _ASKED.reset(token)
    return told[0] if told else Declared()


def print_help(
    name: str,
    about: str,
    records: Sequence[type],
    *,
    engine: Engine | None = None,
    everything: bool = False,
    subject: str = "MODEL",
    commands: Mapping[str, str] | None = None,
) -> None:
    """Print what a command takes.

    Args:
        commands: those that stand below it, each with what it does.
    """
    asked = _ASKED.get()
    if asked is not None:
        asked.append(Declared(tuple(records), engine, tuple(commands or ())))
        return
    width = max(60, min(shutil.get_terminal_size((80, 24)).columns, 100))
    print(f"Usage: vram-planner {name} {subject} [options]\n")
    for paragraph in textwrap.dedent(about).strip().split("\n\n"):
        print(textwrap.fill(" ".join(paragraph.split()), width), end="\n\n")
    if engine is not None:
        oldest, newest = engine.versions
        print(f"Options of {engine.title}, {oldest} to {newest} (--engine {', '.join(engine_names())}):\n")
    if commands:
        print("Commands:")
        for command, what in commands.items():
            first, *more = textwrap.wrap(what, width - _INDENT // 2)
            print(
                "\n".join((f"  {command:<{_INDENT // 2 - 2}}{first}", *(" " * (_INDENT // 2) + line for line in more)))
            )
        print()
    inputs = [one for record in records for one in inputs_of(record)]
    shown = [one for one in inputs if everything or one.option.common]
    panels = dict.fromkeys(one.option.panel or "Options" for one in shown)
    for panel in panels:
        print(f"{panel}:")
        for one in shown:
            if (one.option.panel or "Options") == panel:
                print("\n".join(_lines(one, width)))
        print()
    if not everything:
        print("--help-all lists every option.")


def _lines(one: Input, width: int) -> Iterator[str]:
    names = ", ".join(one.spellings)
    if not one.is_switch:
        names += " " + ("|".join(one.option.choices) if 0 < len(one.option.choices) <= 4 else _metavar(one))
    text = one.option.help
    if len(one.option.choices) > 4:
        text += f" One of {', '.join(one.option.choices)}."
    if one.default not in (None, False, ()):
        text += f" [{plain(one.default)}]"
    wrapped = textwrap.wrap(text, width - _INDENT - 2) or [""]
    first = f"  {names}"
    if len(first) > _INDENT:
        yield first
        yield from (" " * (_INDENT + 2) + line for line in wrapped)
        return
    yield f"{first:<{_INDENT}}  {wrapped[0]}"
    yield from (" " * (_INDENT + 2) + line for line in wrapped[1:])


def _metavar(one: Input) -> str:
    if one.option.unit:
        return one.option.unit.upper()
    kinds = {float: "X", int: "N", str: "TEXT"}
    return next((word for kind, word in kinds.items() if kind in one.kinds), "VALUE")
