"""A reader of the formulas that plans print, written from what they say and not from the code that says it.

A formula is clauses between `; `. A clause is terms between ` + ` and ` - `. A term is words and a product of numbers
in bytes, or words and one number whose unit stands behind it or behind a later term. `product = number` and
`words: number` give a value; of the first, both sides have to agree.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 1000, "MB": 10**6, "GB": 10**9}
_NUMBER: Final = r"\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT: Final = "|".join(sorted(UNITS, key=len, reverse=True))
_TOKEN: Final = re.compile(rf"(?P<number>{_NUMBER})|(?P<sign>[()+/,-])|(?P<word>[^\s()+/,;=]+)")
_ASIDE: Final = re.compile(r" ?\((?![^()]*\bx\b)(?![\d,. +x/()-]*\))[^()]*[A-Za-z=][^()]*\)")
_LARGER: Final = "the larger of "
_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class NotArithmetic(ValueError):
    """Words that no number follows from."""


@dataclass(frozen=True)
class Said:
    """A value in bytes and by how much its last printed digit leaves it open."""

    value: float
    open_by: float


def pairs_that_disagree(formula: str) -> list[str]:
    """The `product = number` of a formula whose two sides do not agree."""
    odd = []
    for _, term, unit in _terms(formula):
        left, equal, right = term.rpartition(" = ")
        if not equal or " x " not in left:
            continue
        said = _number(right, unit)
        try:
            computed = arithmetic(left)
        except NotArithmetic:
            odd.append(f"{term}: the left side is no arithmetic")
            continue
        if abs(computed - said.value) > said.open_by + 1:
            odd.append(f"{term}: {computed:,.0f} is not {said.value:,.0f}")
    return odd


def total(formula: str) -> Said | None:
    """What the terms of a formula of one clause add up to; None where a term has no number.

    "the larger of A; B" is the larger of its clauses.
    """
    formula = _plain(formula)
    if formula.startswith(_LARGER):
        either = [total(clause) for clause in formula.removeprefix(_LARGER).split("; ")]
        known = [said for said in either if said is not None]
        return max(known, key=lambda said: said.value) if len(known) == len(either) else None
    if ";" in formula:
        return None
    value = open_by = 0.0
    found = list(_terms(formula))
    if len(found) == 1 and not any(mark in formula for mark in (" = ", ": ", " x ", " / ")):
        return None  # one number among words need not be the result
    for sign, term, unit in found:
        try:
            said = _value(term, unit)
        except NotArithmetic:
            return None
        value += sign * said.value
        open_by += said.open_by
    return Said(value, open_by)


def arithmetic(text: str) -> float:
    """The value of a product in which words only name its factors."""
    words: list[str] = []
    for found in _TOKEN.finditer(text):
        number, sign, word = found["number"], found["sign"], found["word"]
        if number:
            words.append(number.replace(",", ""))
        elif sign:
            words.append(sign)
        elif word == "x":
            words.append("*")
        elif word in ("max", "min"):
            words.append(word)
        elif word in UNITS:
            words.append(f"* {UNITS[word]}")
    try:
        return _evaluated(ast.parse(" ".join(words), mode="eval").body)
    except SyntaxError:
        raise NotArithmetic(text) from None


def _evaluated(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluated(left), _evaluated(right))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=arguments):
            return {"max": max, "min": min}[name](_evaluated(one) for one in arguments)
    raise NotArithmetic(ast.dump(node))


def _plain(formula: str) -> str:
    """The formula without asides and without the title of a sum ("8,190,735,360 weights as bfloat16: ")."""
    text = _ASIDE.sub("", formula)
    if text.startswith(_LARGER):
        return text
    title, colon, rest = text.partition(": ")
    return rest if colon and " + " in rest and " x " not in title else text


def _terms(formula: str) -> Iterator[tuple[int, str, str]]:
    """(sign, term, unit of a number that has none of its own), unit being that of the next term that has one."""
    for text in _plain(formula).split("; "):
        found: list[tuple[int, str]] = []
        depth, start, sign = 0, 0, 1
        for index, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if not depth and text[index : index + 3] in (" + ", " - "):
                found.append((sign, text[start:index].strip()))
                sign, start = (1 if text[index + 1] == "+" else -1), index + 3
        found.append((sign, text[start:].strip()))
        unit, read = "B", []
        for sign, term in reversed(found):
            own = re.findall(rf"(?<![\w])(?:{_UNIT})(?![\w])", term)
            unit = own[-1] if own else unit
            read.append((sign, term, unit))
        yield from reversed(read)


def _value(term: str, unit: str) -> Said:
    """Of `product = number` and `words: number` the number, of a product what it makes, of words and a number this."""
    for mark in (" = ", ": "):
        if mark in term:
            return _number(term.rpartition(mark)[2], unit)
    if " x " in term or "/" in term:
        return Said(arithmetic(term), 0.5)
    return _number(term, unit)


def _number(text: str, unit: str) -> Said:
    numbers = re.findall(rf"(?<![\w.])({_NUMBER})(?: ?({_UNIT}))?(?![\w])", text)
    with_unit = [one for one in numbers if one[1]]
    numbers = with_unit if len(with_unit) == 1 else numbers
    if len(numbers) != 1:
        raise NotArithmetic(text)
    digits, own = numbers[0]
    scale = UNITS[own or unit]
    return Said(float(digits.replace(",", "")) * scale, scale * 10.0 ** -len(digits.partition(".")[2]) * 0.5)
