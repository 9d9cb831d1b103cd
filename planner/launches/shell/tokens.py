"""Words, operators and here-documents of a shell text, and texts of other shells made the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple


class Part(NamedTuple):
    """A piece of a word: "text", "variable" (what stands in ${}), "command" or "sum"."""

    kind: str
    text: str
    quoted: bool


@dataclass(slots=True)
class Word:
    """A word as written; `array` is the list of A=( ... ), `appended` that of A+=( ... )."""

    line: int
    parts: list[Part] = field(default_factory=list)
    array: list[Word] | None = None
    quoted: bool = False

    @property
    def literal(self) -> str | None:
        """The text, if nothing in it is to be expanded."""
        if any(part.kind != "text" for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)

    @property
    def raw(self) -> str:
        """The word for people, its variables as they stand."""
        shown = {"text": "{}", "variable": "${{{}}}", "command": "$({})", "sum": "$(({}))"}
        return "".join(shown[part.kind].format(part.text) for part in self.parts)


@dataclass(slots=True)
class Heredoc:
    body: str
    line: int
    expands: bool


@dataclass(slots=True)
class Token:
    """A word, or an operator; "\\n" ends a command as ";" does."""

    line: int
    operator: str = ""
    word: Word | None = None


@dataclass(slots=True)
class Redirect:
    operator: str
    target: Word
    heredoc: Heredoc | None = None


@dataclass(slots=True)
class Lexed:
    tokens: list[Token | Redirect]
    comments: list[tuple[int, str]]


def normalise(text: str) -> tuple[str, bool]:
    """(text with \\n line ends and POSIX continuations, whether it was PowerShell)."""
    text = (
        text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )
    backquoted = re.search(r"[ \t]`[ \t]*$", text, re.MULTILINE) is not None
    powershell = re.search(r"\$env:", text, re.IGNORECASE) is not None or (
        backquoted
        and not re.search(r"\\$", text, re.MULTILINE)
        and text.count("`") == len(re.findall(r"`[ \t]*(?:\n|$)", text))
    )
    if powershell:
        text = re.sub(r"`[ \t]*\n", r"\\\n", text)
    elif re.search(r"[ \t]\^$", text, re.MULTILINE) and "\\\n" not in text:
        text = re.sub(r"\^\n", r"\\\n", text)
        text = re.sub(r"^([ \t]*)(?:REM|::)\b.*$", r"\1", text, flags=re.MULTILINE | re.IGNORECASE)
        text = re.sub(r"^[ \t]*(?:@echo.*|setlocal.*)$", "", text, flags=re.MULTILINE | re.IGNORECASE)
        text = re.sub(r"%([A-Za-z_]\w*)%", r"${\1}", text)
        text = re.sub(r'^[ \t]*set +"?([A-Za-z_]\w*)=([^"\n]*)"?[ \t]*$', r"export \1='\2'", text, flags=re.M | re.I)
    return text, powershell
