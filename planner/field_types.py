"""Whether the fields of a dataclass hold what their annotations say: what a caller in Python can get wrong.

One check for every record that users fill in, from the annotations alone, so that a new field needs no line here.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from planner.errors import UsageError

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "True or False"}


class _Rule(NamedTuple):
    """One field: its name, the types whose values pass at a glance, the item type of a tuple, what is expected."""

    name: str
    kinds: frozenset[type]
    items: type | None
    expected: str


def check_field_types(record: Any, *, option: Callable[[str], str] = str) -> None:
    """Every field holds a value of its annotated type.

    Whole numbers pass as numbers, True and False as neither; subclasses pass. Annotations may be plain types, unions of
    them, and tuple[T, ...].

    Args:
        record: an instance of a dataclass.
        option: how a field's name is spelled in the message.

    Raises:
        UsageError: names the field, its value and what was expected.
    """
    kind: type = type(record)
    for rule in _rules(kind):
        value = getattr(record, rule.name)
        if type(value) in rule.kinds and (rule.items is None or type(value) is not tuple):
            continue
        if not _passes(value, rule):
            raise UsageError(
                f"{option(rule.name)} is {_shown(value)}; expected {rule.expected}", field=rule.name
            )  # fmt: skip


def _passes(value: object, rule: _Rule) -> bool:
    if isinstance(value, bool):
        return bool in rule.kinds
    if not isinstance(value, tuple(rule.kinds)):
        return False
    if rule.items is None or not isinstance(value, tuple):
        return True
    return all(isinstance(item, rule.items) and not isinstance(item, bool) for item in value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


@cache
def _rules(record: type) -> tuple[_Rule, ...]:
    hints = get_type_hints(record)
    return tuple(_rule(field.name, hints[field.name]) for field in fields(record))


def _rule(name: str, annotation: object) -> _Rule:
    union = get_origin(annotation) in (Union, types.UnionType)
    options = get_args(annotation) if union else (annotation,)
    kinds: set[type] = set()
    items, words = None, []
    for one in options:
        kind = get_origin(one) or one
        assert isinstance(kind, type), f"{name}: {annotation} is more than this check reads"
        kinds.add(kind)
        if kind is tuple:
            items = get_args(one)[0]
        if kind is float:
            kinds.add(int)
        if kind is not types.NoneType:
            words.append(f"a tuple of {items.__name__}" if items and kind is tuple else _WORDS.get(kind, kind.__name__))
    if types.NoneType in kinds:
        words.append("None")
    return _Rule(name, frozenset(kinds), items, " or ".join(words))
