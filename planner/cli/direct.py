"""Calling a command straight from its declaration, when its words are plain.

typer builds a validator for each of a command's fifty options before it runs it, which takes longer than the plan. Here
the same declarations are read for words that need none: one MODEL, known options, plain values. Anything else (help,
unknown flags, values that do not parse) is left to typer, which then explains it.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from inspect import signature
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

_WHOLE: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Option:
    """One parameter of the command: its name, its spellings, its type and what it becomes when it is a switch."""

    name: str
    opts: tuple[str, ...]
    kind: type
    value: bool | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    name: str


@dataclass(slots=True)
class _Command:
    params: list[_Option] = field(default_factory=list)


@dataclass(slots=True)
class _Context:
    """What a command asks of typer's context: no words left over, and which options were given."""

    command: _Command
    given: frozenset[str]
    args: tuple[str, ...] = ()

    def get_parameter_source(self, name: str) -> _Source:
        """Where a parameter's value came from, as click names it."""
        return _Source("COMMANDLINE" if name in self.given else "DEFAULT")


# What stands before the MODEL of a pasted command; the one assignment that has an option here becomes it.
_PROGRAM: Final = ["vllm", "serve"]
_ALLOWED_LONG: Final = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=true")


def without_program(words: list[str]) -> list[str]:
    """The words of a pasted `vllm serve MODEL ...` without the program, and without what allows long requests."""
    allowed = words[:1] and words[0] in _ALLOWED_LONG
    rest = words[1:] if allowed else words
    if rest[:2] != _PROGRAM:
        return words
    return [*rest[2:], "--allow-long-max-model-len"] if allowed else rest[2:]


def direct_call(function: Callable[..., None], words: list[str]) -> Callable[[], None] | None:
    """The call that these words make of a command, or None when typer should read them."""
    hints = get_type_hints(function, include_extras=True)
    positional, options = "", {}
    context_name = ""
    for name in signature(function).parameters:
        hint = hints[name]
        if hint is typer.Context:
            context_name = name
            continue
        if get_origin(hint) is not Annotated:
            return None
        annotation, info = get_args(hint)[:2]
        if isinstance(info, ArgumentInfo):
            positional = name
        elif isinstance(info, OptionInfo):
            for option in _options(name, annotation, info):
                for spelling in option.opts:
                    options[spelling] = option
    values = _read(words, positional, options)
    if values is None or not context_name:
        return None
    listed = list(dict.fromkeys(options.values()))
    context = _Context(_Command(listed), frozenset(values))
    return lambda: function(**{context_name: context}, **values)


def _options(name: str, annotation: object, info: OptionInfo) -> list[_Option]:
    kind = _scalar(annotation)
    constrained = (info.min, info.max, info.callback, info.parser)
    if kind is None or any(rule is not None for rule in constrained):
        return []
    # In an annotation the first spelling is where a default would stand, and typer moves it.
    first = [info.default] if isinstance(info.default, str) and info.default.startswith("-") else []
    spellings = [*first, *(str(one) for one in info.param_decls or ())] or [f"--{name.replace('_', '-')}"]
    if kind is not bool:
        return [_Option(name, tuple(spellings), kind)]
    on = tuple(one.partition("/")[0] for one in spellings)
    off = tuple(one.partition("/")[2] for one in spellings if "/" in one)
    found = [_Option(name, on, bool, True)]
    return [*found, _Option(name, off, bool, False)] if off else found


def _scalar(annotation: object) -> type | None:
    """The type of a single value: T, or T of `T | None`; None for lists and the like."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [part for part in get_args(annotation) if part is not type(None)]
        annotation = rest[0] if len(rest) == 1 else None
    return annotation if isinstance(annotation, type) and get_origin(annotation) is None else None


def _read(words: list[str], positional: str, options: dict[str, _Option]) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            if positional in values or not positional:
                return None
            values[positional] = word
            continue
        name, attached, value = word.partition("=")
        option = options.get(name)
        if option is None:
            return None
        if option.value is not None:
            if attached:
                return None
            values[option.name] = option.value
            continue
        if not attached:
            value = next(left, "-")
            if value.startswith("-"):
                return None
        converted = _converted(value, option.kind)
        if converted is None:
            return None
        values[option.name] = converted
    return values if positional in values else None


def _converted(value: str, kind: type) -> object | None:
    if kind is str:
        return value
    if kind is int:
        return int(value) if _WHOLE.fullmatch(value) else None
    if kind is float:
        return float(value) if _DECIMAL.fullmatch(value) else None
    if issubclass(kind, Enum):
        return next((member for member in kind if member.value == value), None)
    return None
