"""Simple commands of a shell text, with the branches, loops and functions that they stand in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.launches.shell.tokens import Redirect, Token, Word

_OPENS: Final = {
    "if": "if",
    "case": "case",
    "for": "for",
    "select": "for",
    "while": "while",
    "until": "while",
    "{": "{",
}


_CLOSES: Final = {"fi": "if", "esac": "case", "done": "loop", "}": "{"}


_CONTINUES: Final = ("then", "else", "elif", "do", "!", "time")


@dataclass(slots=True)
class Simple:
    words: list[Word]
    redirects: list[Redirect]
    line: int
    blocks: tuple[str, ...]
    loop: tuple[str, list[Word]] | None = None
    function: str | None = None


def simples(tokens: list[Token | Redirect]) -> Iterator[Simple]:
    """Simple commands in order, each with the blocks (if, for, ...) that it stands in."""
    blocks: list[str] = []
    named: dict[int, str] = {}
    words: list[Word] = []
    redirects: list[Redirect] = []
    in_pattern = False
    for token in [*tokens, Token(0, operator="\n")]:
        if isinstance(token, Redirect):
            redirects.append(token)
            continue
        if token.word is not None:
            words.append(token.word)
            continue
        if in_pattern or (blocks and blocks[-1] == "case" and token.operator in ("(", ")", "|")):
            in_pattern = False
            words = []
            continue
        if token.operator == "(" and len(words) == 1 and words[0].literal:
            named[len(blocks)] = words[-1].literal or ""
            blocks.append("function?")
            words = []
            continue
        if token.operator == ")" and blocks and blocks[-1] == "function?":
            blocks[-1] = "function"
            continue
        if words and words[0].literal == "function" and len(words) > 1:
            named[len(blocks)] = words[1].literal or ""
        simple = _reduce(words, blocks)
        if simple is not None:
            line = simple[0][0].line if simple[0] else token.line
            function = next((named.get(n) for n, block in enumerate(blocks) if block == "function"), None)
            yield Simple(simple[0], redirects, line, tuple(blocks), simple[1], function)
        words, redirects = [], []


def _reduce(words: list[Word], blocks: list[str]) -> tuple[list[Word], tuple[str, list[Word]] | None] | None:
    """Takes the keywords off a command and keeps the stack of blocks; None when nothing is left."""
    words = list(words)
    while words:
        key = words[0].literal if not words[0].quoted else None
        if key in _CONTINUES:
            words.pop(0)
            continue
        if key == "case":
            blocks.append("case")
            return None
        if key in ("for", "select"):
            blocks.append("for")
            name = words[1].literal if len(words) > 1 else None
            listed = words[3:] if len(words) > 2 and words[2].literal == "in" else []
            return ([], (name, listed)) if name and re.fullmatch(r"[A-Za-z_]\w*", name) else None
        if key == "function":
            blocks.append("function")
            words = words[2:]
            continue
        if key == "{" and blocks and blocks[-1] == "function":
            words.pop(0)
            continue
        if key in _OPENS:
            blocks.append(_OPENS[key])
            words.pop(0)
            continue
        if key in _CLOSES:
            if blocks:
                blocks.pop()
            return None
        return words, None
    return None


def braces(items: list[str]) -> list[str]:
    """{1..4} and {a,b} written out."""
    found: list[str] = []
    for item in items:
        numbers = re.fullmatch(r"\{(\d{1,6})\.\.(\d{1,6})\}", item)
        if numbers:
            low, high = int(numbers[1]), int(numbers[2])
            found += [str(n) for n in range(low, min(high, low + 999) + 1)]
        elif re.fullmatch(r"\{[^{}]*,[^{}]*\}", item):
            found += item[1:-1].split(",")
        else:
            found.append(item)
    return found
