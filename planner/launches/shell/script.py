"""A shell text as the commands that would run, with what is known of their variables.

Assignments are followed, defaults of ${V:-d} are taken, literal sums are folded; nothing is run. What stands in a
branch is reported and not merged, what a loop repeats is counted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from planner.launches.record import Launch, LaunchError
from planner.launches.secrets import Secrets
from planner.launches.shell.lexer import MOST_WORDS, Heredoc, Part, Redirect, Token, Word, lex, normalise

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_EXPANSION: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(?:\[([^\]]*)\])?(:?[-=?+])?(.*)", re.DOTALL)
_DECLARES: Final = ("export", "declare", "local", "readonly", "typeset", "set", "setx")
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
# Programs that start nothing and leave nothing behind that matters here.
_IDLE: Final = frozenset(
    [
        "echo",
        "printf",
        "mkdir",
        "cd",
        "ls",
        "rm",
        "cp",
        "mv",
        "ln",
        "sleep",
        "tee",
        "grep",
        "sed",
        "awk",
        "test",
        "[",
        "[[",
        "wait",
        "kill",
        "pkill",
        "curl",
        "wget",
        "chmod",
        "chown",
        "pwd",
        "true",
        "false",
        "date",
        "head",
        "tail",
        "touch",
        "trap",
        "shift",
        "set",
        "pushd",
        "popd",
        "git",
        "apt",
        "apt-get",
        "nvidia-smi",
        "module",
        "ulimit",
        "sync",
        "clear",
        "exit",
        "return",
        "break",
        "continue",
    ]
)
_MOST_COMMANDS: Final = 20_000
_LONGEST_VALUE: Final = 100_000


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


@dataclass(slots=True)
class Command:
    """A command with its own environment (what was exported before, and what stands before it)."""

    words: list[Argument]
    line: int
    environment: dict[str, Variable] = field(default_factory=dict)
    heredoc: Heredoc | None = None
    blocks: tuple[str, ...] = ()
    repeats: int = 1
    here_text: str | None = None


@dataclass(slots=True)
class Script:
    """What is left of a text besides its commands: files that it writes, comments, branches."""

    commands: list[Command] = field(default_factory=list)
    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    comments: list[tuple[int, str]] = field(default_factory=list)


class Reader:
    """Walks one shell text.

    Args:
        given: --set values, which win over what the text assigns by default.
        launch: takes what could not be read.
    """

    def __init__(
        self,
        launch: Launch,
        secrets: Secrets,
        given: Mapping[str, str],
        environment: Mapping[str, Variable] | None = None,
    ) -> None:
        self.launch, self.secrets, self.given = launch, secrets, given
        self.variables: dict[str, Variable] = dict(environment or {})
        self.exported: dict[str, None] = dict.fromkeys(environment or {})
        self.script = Script()
        self.conditional: dict[str, int] = {}
        self.defaulted: dict[str, None] = {}
        self._loops: list[tuple[str, list[str]]] = []

    def read(self, text: str, *, first_line: int = 1) -> Script:
        """The commands of the text, in order.

        Raises:
            LaunchError: a quotation mark or a bracket that is never closed, or too many commands.
        """
        text, powershell = normalise(text)
        lexed = lex(text, first_line=first_line, powershell=powershell)
        self.script.comments += lexed.comments
        commented = {line for line, _ in lexed.comments}
        for simple in _simples(lexed.tokens):
            self._run(simple, commented)
            if len(self.script.commands) > _MOST_COMMANDS:
                raise LaunchError(f"more than {_MOST_COMMANDS:,} commands", form="shell")
        return self.script

    def _run(self, simple: _Simple, commented: set[int]) -> None:
        words = simple.words
        blocks = simple.blocks
        if simple.loop is not None:
            name, items = simple.loop
            listed = [argument for item in items for argument in self.expand(item)]
            fixed = [one.text for one in listed if not one.missing]
            fixed = _braces(fixed)
            self.variables[name] = Variable(
                fixed[0] if fixed else "", simple.line, f"first of a loop over {name}", () if fixed else (name,)
            )
            self._loops = [*self._loops[: sum(b == "for" for b in blocks)], (name, fixed)]
            return
        branch = any(block in ("if", "case", "function") for block in blocks)
        own: dict[str, Variable] = {}
        index = 0
        while index < len(words):
            found = self._assignment(words[index])
            if found is None:
                break
            own[found[0]] = found[1]
            index += 1
        rest = words[index:]
        if not rest:
            for name, variable in own.items():
                self._assign(name, variable, branch=branch and "function" not in blocks, line=simple.line)
            return
        first = rest[0].literal
        if first in _DECLARES:
            for word in rest[1:]:
                found = self._assignment(word)
                if found is not None:
                    self._assign(*found, branch=branch and "function" not in blocks, line=simple.line)
                    self.exported[found[0]] = None
                elif word.literal and re.fullmatch(r"[A-Za-z_]\w*", word.literal):
                    self.exported[word.literal] = None
            return
        if first in _IDLE and not any(redirect.heredoc for redirect in simple.redirects):
            return
        if first == "unset":
            for word in rest[1:]:
                self.variables.pop(word.literal or "", None)
            return
        if first in ("source", "."):
            target = rest[1].raw if len(rest) > 1 else ""
            self.launch.skip(f"{first} {target} (line {simple.line})", matters=True)
            return
        arguments = [argument for word in rest for argument in self.expand(word)]
        if not arguments:
            return
        if len(arguments) > MOST_WORDS:
            raise LaunchError(f"line {simple.line}: a command of more than {MOST_WORDS:,} words", form="shell")
        if re.match(r"--?[A-Za-z]", arguments[0].text) and len(self.script.commands):
            why = "a comment line" if simple.line - 1 in commented else "no backslash at its end, or a blank behind it,"
            self.launch.note(
                f"line {simple.line}: {why} ends the command above it: {arguments[0].text.partition('=')[0]}"
                " and what follows never reach the server"
            )
        heredoc = next((r.heredoc for r in simple.redirects if r.heredoc is not None), None)
        here_text = next((r.target.literal for r in simple.redirects if r.operator == "<<<"), None)
        if heredoc is not None:
            self._keep_file(arguments, heredoc, simple.redirects)
        exported = {name: self.variables[name] for name in self.exported if name in self.variables}
        repeats = 1
        if "for" in blocks and self._loops:
            repeats = max(1, len(self._loops[-1][1]))
        self.script.commands.append(
            Command(arguments, simple.line, {**exported, **own}, heredoc, blocks, repeats, here_text)
        )

    def _keep_file(self, arguments: list[Argument], heredoc: Heredoc, redirects: list[Redirect]) -> None:
        targets = [self.joined(r.target) for r in redirects if r.operator in (">", ">>", ">|")]
        if arguments[0].text == "tee":
            targets += [one for one in arguments[1:] if not one.text.startswith("-")]
        body = heredoc.body
        if heredoc.expands and "$" in body:
            body = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", self._known, body)
        for target in targets:
            self.script.files[target.text] = (body, heredoc.line)

    def _known(self, found: re.Match[str]) -> str:
        variable = self.variables.get(found[1])
        return variable.text if variable is not None and not variable.missing else found[0]

    def _assignment(self, word: Word) -> tuple[str, Variable] | None:
        """NAME=value, NAME+=value or NAME=( ... ) of a word, None for any other word."""
        if not word.parts or word.parts[0].kind != "text" or word.parts[0].quoted:
            return None
        found = _ASSIGNMENT.match(word.parts[0].text)
        if found is None:
            return None
        name, append = found[1], bool(found[2])
        if word.array is not None:
            items = [argument for item in word.array for argument in self.expand(item)][:MOST_WORDS]
            before = self.variables.get(name)
            if append and before is not None and before.items is not None:
                items = [*before.items, *items]
            return name, Variable("", word.line, items=items)
        rest = Word(word.line, [word.parts[0]._replace(text=found[3]), *word.parts[1:]], quoted=word.quoted)
        value = self.joined(rest)
        text = value.text
        if append and name in self.variables:
            text = self.variables[name].text + text
        if name in self.given:
            return name, Variable(self.given[name], word.line, "--set")
        self.secrets.keep(name, text)
        return name, Variable(text[:_LONGEST_VALUE], word.line, value.how, value.missing)

    def _assign(self, name: str, variable: Variable, *, branch: bool, line: int) -> None:
        if not branch or name in self.given:
            self.variables[name] = variable
            self.conditional.pop(name, None)
            return
        self.conditional[name] = line
        before = self.variables.get(name)
        if before is None:
            self.variables[name] = Variable("", line, missing=(name,))
        added = ""
        if variable.items is not None:
            kept = len(before.items or []) if before is not None else 0
            flags = [one.text.partition("=")[0] for one in variable.items[kept:] if one.text.startswith("--")]
            added = f" (it adds {' '.join(flags)})" if flags else ""
        self.launch.note(f"line {line}: a branch that sets {name} was not taken{added}; the caller's case may differ")

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
        if name in ("@", "*"):
            self.launch.skip(f"${name} (line {word.line}): further words may come with it", matters=True)
            return []
        variable = self.variables.get(name)
        if variable is not None and variable.items is not None and index in ("@", "*"):
            return list(variable.items)
        if variable is not None and variable.items is not None and index and index.isdigit():
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
        return Argument(text[:_LONGEST_VALUE], word.line, hows[0] if hows else "stated", tuple(dict.fromkeys(missing)))

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


@dataclass(slots=True)
class _Simple:
    words: list[Word]
    redirects: list[Redirect]
    line: int
    blocks: tuple[str, ...]
    loop: tuple[str, list[Word]] | None = None


def _simples(tokens: list[Token | Redirect]) -> Iterator[_Simple]:
    """Simple commands in order, each with the blocks (if, for, ...) that it stands in."""
    blocks: list[str] = []
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
            blocks.append("function?")
            words = []
            continue
        if token.operator == ")" and blocks and blocks[-1] == "function?":
            blocks[-1] = "function"
            continue
        simple = _reduce(words, blocks)
        if simple is not None:
            yield _Simple(
                simple[0], redirects, simple[0][0].line if simple[0] else token.line, tuple(blocks), simple[1]
            )
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


def _braces(items: list[str]) -> list[str]:
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
