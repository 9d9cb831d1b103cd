"""A command line read by the declaration of its inputs.

argparse matches the words, as it does in vLLM, SGLang and the HF trainers, so that prefixes, `-tp 2` and `--x=y` mean
the same here; values are read by the declaration, so that its messages are the same everywhere. An underscore in a name
is as good as a dash; a switch takes `true` and `false`; `--name.key value` fills a JSON object.
"""

from __future__ import annotations

import json
import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeVar

from planner.contract.inputs import Input, check, inputs_of, read_value
from planner.contract.reading import is_switch_word, shown
from planner.errors import UsageError

Record = TypeVar("Record")
Takes = Literal["value", "switch"]
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
_MOST_WORDS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a command line gave.

    Args:
        positional: words that are no option's, such as MODEL.
        given: values by field, of those that were typed or set by the environment.
        typed: the option as it was typed, by field.
        passed: the words of options that the program knows and no input takes.
        environment: assignments before the command that set no input.
    """

    positional: tuple[str, ...]
    given: Mapping[str, Any]
    typed: Mapping[str, str]
    passed: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def record(self, kind: type[Record], **more: Any) -> Record:
        """The record of these inputs; `more` are fields that are no input, or defaults that the caller knows better.

        Raises:
            UsageError: a value out of its range; names the option.
        """
        names = {one.name for one in inputs_of(kind)}
        given = {name: value for name, value in self.given.items() if name in names}
        settle = getattr(kind, "settle", None)  # inputs that mean something only together, such as a card
        record = kind(**more | (settle(given) if settle else given))
        check(record)
        return record


def parse(
    records: Sequence[type],
    words: Sequence[str],
    *,
    most_positional: int = 1,
    other: Callable[[str], Takes | None] | None = None,
    environment: Mapping[str, str] | None = None,
    hint: Callable[[str], str] | None = None,
    lists: Collection[str] = (),
) -> Parsed:
    """Read words by the inputs of these records.

    Args:
        other: what an option of the program takes that is no input here; None for what it does not know.
        environment: variables that are set beside those that stand before the command.
        hint: what to add to "no such option" ("; nearest: --x").
        lists: fields that take several values here, separated by commas or given again; they become tuples.

    Raises:
        UsageError: an unknown option, a missing or wrong value, one given twice differently, a word too many.
    """
    if len(words) > _MOST_WORDS:
        raise UsageError(f"the command has {len(words):,} words; at most {_MOST_WORDS:,} are read", field="command")
    named = _by_spelling(records)
    assigned, rest = _assignments(words)
    plain, passed = _normalised(rest, named, other)
    matched, positional = _match(named, plain, hint)
    if len(positional) > most_positional:
        extra = positional[most_positional]
        raise UsageError(f"{extra[:60]!r} is not an option; give one MODEL, then options", field=extra[:60])
    given, typed = _values(matched, lists)
    unread = _from_environment(given, records, {**(environment or {}), **assigned})
    return Parsed(
        positional=tuple(positional),
        given=given,
        typed=typed,
        passed=tuple(passed),
        environment={name: value for name, value in assigned.items() if name in unread},
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """A spelling: its input, and what a switch becomes by it."""

    input: Input
    sets: bool | None


def _by_spelling(records: Sequence[type]) -> dict[str, _Named]:
    found: dict[str, _Named] = {}
    for record in records:
        for one in inputs_of(record):
            for spelling in one.spellings:
                found.setdefault(dashed(spelling), _Named(one, True if one.is_switch else None))
                if one.is_switch and spelling.startswith("--"):
                    found.setdefault(f"--no-{dashed(spelling)[2:]}", _Named(one, False))
            for spelling in one.option.switched_off:
                found[dashed(spelling)] = _Named(one, False)
    return found


def dashed(word: str) -> str:
    """An option's name with dashes for underscores; its value and short options stay as they are."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _assignments(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The NAME=value words before a command, and the rest."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if not _ASSIGNMENT.match(word):
            return found, list(words[index:])
        name, _, value = word.partition("=")
        found[name] = value
    return found, []


def _normalised(
    words: Sequence[str], named: Mapping[str, _Named], other: Callable[[str], Takes | None] | None
) -> tuple[list[str], list[str]]:
    """The words as argparse takes them, and those of options that are no input here."""
    plain: list[str] = []
    passed: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    left = list(words)
    placed = False
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-" or _is_number(word):
            plain.append(word)
            placed = True
            continue
        name, equals, value = dashed(word).partition("=")
        base, dot, path = name.partition(".")
        if dot and (base in named or (other and other(base))):
            text = value if equals else (left.pop(0) if left else "")
            _put(objects.setdefault(base, {}), path.replace("-", "_").split("."), text, name)
            continue
        if name not in named and not (other and other(name)):
            name = _completed(name, named)
        known = named.get(name)
        if known is not None:
            plain += _known(known, name, equals, value, left)
            continue
        takes = other(name) if other else None
        if takes is None:
            plain.append(dashed(word))
            continue
        passed.append(f"{name}{equals}{value}")
        if takes == "value" and not equals:
            while left and not left[0].startswith("--") and (passed[-1].startswith("-") or placed):
                passed.append(left.pop(0))
    for base, filled in objects.items():
        target = plain if base in named else passed
        target.append(f"{base}={json.dumps(filled)}")
    return plain, passed


def _completed(name: str, named: Mapping[str, _Named]) -> str:
    """The one long option that begins like this, as argparse completes it; the name itself where none does."""
    found = sorted(spelling for spelling in named if len(name) > 3 and spelling.startswith(name))
    if len({named[spelling].input.name for spelling in found}) > 1:
        raise UsageError(f"{name} is short for several options: {', '.join(found[:6])}", field=name)
    return found[0] if found else name


def _known(known: _Named, name: str, equals: str, value: str, left: list[str]) -> list[str]:
    """One option of ours with its value attached, a switch resolved to on or off."""
    one = known.input
    if known.sets is not None and str not in one.kinds:
        text = value if equals else (left.pop(0) if left and is_switch_word(left[0]) else "true")
        on = read_value(one, text, spelled=name)
        return [f"{name}=" + ("true" if on == known.sets else "false")]
    if known.sets is not None and not equals:
        return [f"{name}={'true' if known.sets else 'false'}"]
    if one.option.bare and not equals and not (left and left[0].lower() in one.option.choices):
        return [f"{name}={one.option.bare}"]
    if equals:
        return [f"{name}={value}"]
    if one.items is not None:
        values: list[str] = []
        while left and not left[0].startswith("-") and (not values or left[0][:1].isdigit()):
            values.append(left.pop(0))
        return [f"{name}={','.join(values)}"] if values else [name]
    if left and left[0].startswith("-") and not _is_number(left[0]):
        return [name]
    return [f"{name}={left.pop(0)}"] if left else [name]


def _is_number(word: str) -> bool:
    return word[1:2].isdigit()


def _put(target: dict[str, Any], path: Sequence[str], text: str, name: str) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise UsageError(f"{name}: {key} is given as a value and as an object", field=name)
    try:
        target[path[-1]] = json.loads(text)
    except (ValueError, RecursionError):
        target[path[-1]] = text


class _Given(Action):
    """Keeps each value beside the option as it was typed."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        namespace.matched.append((self.metavar, option, values))


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument ([^:]*): (.*)", message)
        if found:
            name = found[1].split("/")[0]
            raise UsageError(f"{name}: {found[2].replace('one argument', 'a value')}", field=name)
        raise UsageError(message, field="command")


def _match(
    named: Mapping[str, _Named], words: Sequence[str], hint: Callable[[str], str] | None
) -> tuple[list[tuple[_Named, str, str]], list[str]]:
    parser = _Parser(add_help=False, allow_abbrev=True)
    for spelling in named:
        parser.add_argument(spelling, action=_Given, metavar=spelling, dest="matched", default=[])
    parser.add_argument("positional", nargs="*")
    space, rest = parser.parse_known_intermixed_args(words, Namespace(matched=[]))
    for word in rest:
        if word.startswith("-"):
            name = word.partition("=")[0][:60]
            raise UsageError(f"no such option: {name}{hint(name) if hint else ''}", field=name)
    matched = [(named[spelling], typed or spelling, text) for spelling, typed, text in space.matched]
    return matched, [*space.positional, *rest]


def _values(
    matched: Iterable[tuple[_Named, str, str]], lists: Collection[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    given: dict[str, Any] = {}
    typed: dict[str, str] = {}
    for known, spelled, text in matched:
        one = known.input
        if one.name in lists:
            parts = [part.strip() for part in text.split(",") if part.strip()]
            given[one.name] = (*given.get(one.name, ()), *(_listed(one, part, spelled) for part in parts))
            typed.setdefault(one.name, spelled)
            continue
        value = read_value(one, text, spelled=spelled)  # a switch is resolved already, `--no-...` too
        if one.option.several and one.name in given:
            value = (*given[one.name], *value)
        elif one.name in given and given[one.name] != value:
            first = typed[one.name]
            raise UsageError(
                f"{first} is given twice, as {shown(given[one.name])} and as {shown(value)}"
                + (f" ({spelled})" if spelled != first else ""),
                field=one.name,
            )
        given[one.name] = value
        typed.setdefault(one.name, spelled)
    return given, typed


def _listed(one: Input, text: str, spelled: str) -> Any:
    """A value in a list; `none` is the engine's own default."""
    return None if one.optional and text.lower() == "none" else read_value(one, text, spelled=spelled)


def _from_environment(given: dict[str, Any], records: Sequence[type], environment: Mapping[str, str]) -> set[str]:
    """Sets what the command line left open; gives back the variables that no input reads."""
    unread = set(environment)
    for record in records:
        for one in inputs_of(record):
            for name, reader in one.option.environment.items():
                if name not in environment:
                    continue
                unread.discard(name)
                value = reader(environment[name], name)
                if value is not None:
                    given.setdefault(one.name, value)
    return unread
