"""Values, names and sums of a script."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be read, why, and whether it is a computed list."""

    why: str
    computed_list: bool = False
    settle: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A value, and where it came from when it is not written where it is used."""

    value: Any
    how: str = "stated"


@dataclass(slots=True)
class Scope:
    """The names of a function or of the module, in order of assignment."""

    names: dict[str, list[tuple[int, ast.expr | None, bool]]] = field(default_factory=dict)
    parameters: dict[str, ast.expr | None] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    """What a script declares: scopes, options of its parsers, fields of its classes, what `args` names."""

    scope: Scope = field(default_factory=Scope)
    options: dict[str, tuple[ast.expr | None, int]] = field(default_factory=dict)
    classes: dict[str, dict[str, ast.expr | None]] = field(default_factory=dict)
    parsed: set[str] = field(default_factory=set)
    instances: dict[str, str] = field(default_factory=dict)
    has_exec: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)


TORCH_TYPES: Final = ("bfloat16", "float16", "half", "float32", "float", "float64", "int8", "uint8")


def unknown_in(value: Any) -> Unknown | None:
    """The first part of a list or dictionary that could not be read."""
    if isinstance(value, Unknown):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(unknown_in, parts) if found is not None), None)


def arithmetic(operator: ast.operator, a: float, b: float, how: str) -> Known | Unknown:
    try:
        if isinstance(operator, ast.Add):
            return Known(a + b, how)
        if isinstance(operator, ast.Sub):
            return Known(a - b, how)
        if isinstance(operator, ast.Mult):
            return Known(a * b, how)
        if isinstance(operator, ast.FloorDiv):
            return Known(a // b, how)
        if isinstance(operator, ast.Div):
            return Known(a / b, how)
        if isinstance(operator, ast.Mod):
            return Known(a % b, how)
        if isinstance(operator, ast.Pow) and 0 <= b <= 64 and abs(a) <= 1024:
            return Known(a**b, how)
        if isinstance(operator, ast.LShift) and isinstance(a, int) and isinstance(b, int) and 0 <= b < 48:
            return Known(a << b, how)
    except (ZeroDivisionError, OverflowError):
        pass
    return Unknown("is computed")


def dotted(node: ast.expr) -> str:
    """a.b.c of names and attributes; "" for anything else."""
    parts: list[str] = []
    for _ in range(20):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Name):
            return ".".join([node.id, *reversed(parts)])
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            break
    return ".".join(["", *reversed(parts)]) if parts else ""


dotted = dotted
