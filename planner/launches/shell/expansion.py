"""Words of a shell text with their variables, defaults, arrays and sums put in."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.launches.record import Launch, LaunchError
from planner.launches.shell.lexer import lex
from planner.launches.shell.tokens import Part, Token, Word

_EXPANSION: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(?:\[([^\]]*)\])?(:?[-=?+])?(.*)", re.DOTALL)


LONGEST_VALUE: Final = 100_000


@dataclass(frozen=True, slots=True)
class Argument:
    """A word as the program would get it.

    Args:
        missing: names without which it is not known; the text then has them in place, as written.
        how: where a value that is not written here came from.
    """

    text: str
    line: int
    how: str = "stated"
    missing: tuple[str, ...] = ()


@dataclass(slots=True)
class Variable:
    text: str
    line: int
    how: str = "stated"
    missing: tuple[str, ...] = ()
    items: list[Argument] | None = None


def _fold(node: ast.expr) -> int:
    """A sum of whole numbers.

    Raises:
        ValueError: anything else stands in it.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_fold(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _fold(node.left), _fold(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult) and abs(left) < 1 << 64 and abs(right) < 1 << 64:
            return left * right
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            return left // right
        if isinstance(node.op, ast.LShift) and 0 <= right < 64:
            return left << right
    raise ValueError


class Expander:
    """The variables of a text, and words with them put in.

    Args:
        given: --set values, which win over what the text assigns by default.
        launch: takes what could not be read.
    """

    def __init__(self, launch: Launch, given: Mapping[str, str], environment: Mapping[str, Variable] | None) -> None:
        self.launch, self.given = launch, given
        self.variables: dict[str, Variable] = dict(environment or {})
        self.defaulted: dict[str, None] = {}

    def expand(self, word: Word) -> list[Argument]:
        """The words that a word becomes: none, one, or those of an array or of an unquoted list."""
        if len([p for p in word.parts if p.text or p.quoted]) == 1 or all(
            part.kind == "variable" or not part.text for part in word.parts
        ):
            whole = [part for part in word.parts if part.kind == "variable"]
            if len(whole) == 1:
                listed = self._list(whole[0], word)
                if listed is not None:
                    return listed
        joined = self.joined(word)
        if not word.quoted and any(part.kind == "variable" for part in word.parts) and not joined.missing:
            return [replace(joined, text=piece) for piece in joined.text.split()]
        return [joined]

    def _list(self, part: Part, word: Word) -> list[Argument] | None:
        found = _EXPANSION.fullmatch(part.text)
        if found is None:
            return None
        name, index = found[1], found[2]
        if name in ("@", "*") and "@" in self.variables:
            return list(self.variables["@"].items or [])
        if name in ("@", "*"):
            self.launch.skip(f"${name} (line {word.line}): further words may come with it", matters=True)
            return []
        variable = self.variables.get(name)
        if variable is not None and variable.items is not None and index in ("@", "*"):
            return list(variable.items)
        if variable is not None and variable.items is not None and index and index.isdecimal():
            return variable.items[int(index) : int(index) + 1]
        if index in ("@", "*") and variable is None and not found[3]:
            return [Argument(f"${{{part.text}}}", word.line, missing=(name,))]
        return None

    def joined(self, word: Word) -> Argument:
        """The word as one text."""
        text = ""
        missing: list[str] = []
        hows: list[str] = []
        for part in word.parts:
            if part.kind == "text":
                text += part.text
                continue
            value = self._value(part, word.line)
            text += value.text
            missing += value.missing
            if value.how != "stated":
                hows.append(value.how)
        return Argument(text[:LONGEST_VALUE], word.line, hows[0] if hows else "stated", tuple(dict.fromkeys(missing)))

    def _value(self, part: Part, line: int) -> Variable:
        if part.kind == "command":
            shown = f"$({' '.join(part.text.split())[:60]})"
            return Variable(shown, line, missing=(shown,))
        if part.kind == "sum":
            folded = self._sum(part.text)
            if folded is not None:
                return Variable(str(folded), line)
            shown = f"$(({part.text[:60]}))"
            return Variable(shown, line, missing=(shown,))
        found = _EXPANSION.fullmatch(part.text)
        if found is None:
            return Variable(f"${{{part.text[:60]}}}", line, missing=(part.text[:60],))
        name, _, operator, rest = found.groups()
        if name in self.given:
            return Variable(self.given[name], line, "--set")
        variable = self.variables.get(name)
        known = variable is not None and (bool(variable.text) or operator in (None, "", "-", "=", "?", "+"))
        if operator in (":-", "-", ":=", "="):
            if known and variable is not None:
                return variable
            default = self._default(rest, line)
            self.defaulted[name] = None
            chosen = Variable(default.text, line, f"default of ${{{name}{operator}...}}", default.missing)
            if operator in (":=", "="):
                self.variables[name] = chosen
            return chosen
        if operator in (":+", "+"):
            return self._default(rest, line) if known and variable is not None else Variable("", line)
        if operator in (":?", "?"):
            return variable if known and variable is not None else Variable(f"${{{name}}}", line, missing=(name,))
        if rest:
            return Variable(f"${{{part.text[:60]}}}", line, missing=(name,))
        if variable is not None and variable.items is None:
            return variable
        if variable is not None and variable.items:
            if found[2] not in (None, "0", "@", "*"):
                return Variable(f"${{{part.text[:60]}}}", line, missing=(f"{name}[{found[2][:40]}]",))
            first = variable.items[0]
            return Variable(first.text, line, first.how, first.missing)
        if name == "HOME":
            return Variable("~", line)
        return Variable(f"${{{name}}}", line, missing=(name,))

    def _default(self, text: str, line: int) -> Variable:
        try:
            tokens = lex(text, first_line=line).tokens
        except LaunchError:
            return Variable(text, line)
        words = [token.word for token in tokens if isinstance(token, Token) and token.word is not None]
        joined = [self.joined(word) for word in words]
        return Variable(
            " ".join(one.text for one in joined), line, missing=tuple(n for one in joined for n in one.missing)
        )

    def _sum(self, text: str) -> int | None:
        if len(text) > 200:
            return None
        filled = re.sub(
            r"\$?\{?([A-Za-z_]\w*)\}?", lambda m: self.variables[m[1]].text if m[1] in self.variables else m[0], text
        )
        try:
            return _fold(ast.parse(filled.strip().replace("\n", " "), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return None
