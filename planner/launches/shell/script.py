"""A shell text as the commands that would run, with what is known of their variables.

Assignments are followed, defaults of ${V:-d} are taken, literal sums are folded; nothing is run. What stands in a
branch is reported and not merged, what a loop repeats is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Final

from planner.launches.record import Launch, LaunchError
from planner.launches.secrets import Secrets
from planner.launches.shell.blocks import Simple, braces, simples
from planner.launches.shell.expansion import LONGEST_VALUE, Argument, Expander, Variable
from planner.launches.shell.lexer import MOST_WORDS, lex
from planner.launches.shell.tokens import Heredoc, Redirect, Word, normalise

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_DECLARES: Final = ("export", "declare", "local", "readonly", "typeset", "set", "setx")
# Programs that start nothing and leave nothing behind that matters here.
_IDLE: Final = frozenset(files("planner.launches.tables").joinpath("idle_programs.txt").read_text("utf-8").split())
_MOST_COMMANDS: Final = 20_000
# Functions that call one another, or themselves, are followed so far.
_MOST_CALLS: Final = 4
_MOST_STEPS: Final = 100_000


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


def _first(simple: Simple) -> str:
    """The word that a command begins with, "" where it is not written out."""
    return (simple.words[0].literal or "") if simple.words else ""


class Reader(Expander):
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
        super().__init__(launch, given, environment)
        self.secrets = secrets
        self.exported: dict[str, None] = dict.fromkeys(environment or {})
        self.script = Script()
        self.conditional: dict[str, int] = {}
        self._loops: list[tuple[str, list[str]]] = []
        self._bodies: dict[str, list[Simple]] = {}
        self._local: set[str] = set()
        self._steps = 0

    def read(self, text: str, *, first_line: int = 1) -> Script:
        """The commands of the text, in order.

        Raises:
            LaunchError: a quotation mark or a bracket that is never closed, or too many commands.
        """
        text, powershell = normalise(text)
        lexed = lex(text, first_line=first_line, powershell=powershell)
        self.script.comments += lexed.comments
        commented = {line for line, _ in lexed.comments}
        listed = list(simples(lexed.tokens))
        bodies: dict[str, list[Simple]] = {}
        for simple in listed:
            if simple.function:
                bodies.setdefault(simple.function, []).append(simple)
        called = {_first(simple) for simple in listed}
        self._bodies = {name: body for name, body in bodies.items() if name in called}
        for simple in listed:
            if simple.function not in self._bodies:
                self._step(simple, commented, 0)
        return self.script

    def _step(self, simple: Simple, commented: set[int], depth: int) -> None:
        """Run one command; a call of a function is its body, with the words of the call as $1, $2, ..."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise LaunchError(f"functions that call one another more than {_MOST_STEPS:,} times", form="shell")
        body = self._bodies.get(_first(simple))
        if body is None or depth >= _MOST_CALLS:
            self._run(simple, commented)
            if len(self.script.commands) > _MOST_COMMANDS:
                raise LaunchError(f"more than {_MOST_COMMANDS:,} commands", form="shell")
            return
        kept = {name: variable for name, variable in self.variables.items() if name == "@" or name.isdecimal()}
        before = dict(self.variables)
        self._called_with([argument for word in simple.words[1:] for argument in self.expand(word)])
        for inner in body:
            if _first(inner) == "shift":
                count = inner.words[1].literal if len(inner.words) > 1 else "1"
                left = self.variables["@"].items or []
                self._called_with(left[int(count) if count and count.isdecimal() else 1 :])
                continue
            outer = tuple(block for block in inner.blocks if block != "function")
            self._step(replace(inner, blocks=(*simple.blocks, *outer), function=None), commented, depth + 1)
        for name in [name for name in self.variables if name == "@" or name.isdecimal()]:
            del self.variables[name]
        for name in [name for name in self.variables if name in self._local]:
            self.variables.pop(name)
            if name in before:
                self.variables[name] = before[name]
        self._local.clear()
        self.variables.update(kept)

    def _called_with(self, arguments: list[Argument]) -> None:
        for name in [name for name in self.variables if name.isdecimal()]:
            del self.variables[name]
        line = arguments[0].line if arguments else 0
        self.variables["@"] = Variable("", line, items=arguments)
        for number, one in enumerate(arguments, 1):
            self.variables[str(number)] = Variable(one.text, one.line, one.how, one.missing)

    def _run(self, simple: Simple, commented: set[int]) -> None:
        words = simple.words
        blocks = simple.blocks
        if simple.loop is not None:
            name, items = simple.loop
            listed = [argument for item in items for argument in self.expand(item)]
            fixed = [one.text for one in listed if not one.missing]
            fixed = braces(fixed)
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
                    if first == "local":
                        self._local.add(found[0])
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
        return name, Variable(text[:LONGEST_VALUE], word.line, value.how, value.missing)

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
