"""Shell text to words with their lines, without a shell: quotes, continuations, comments, here-documents, blocks.

Follows POSIX 2.2 and 2.3 and bash's arrays; PowerShell's and cmd.exe's continuations are made the same first. Nothing
is expanded here: a word keeps its variables and substitutions as parts.
"""

from __future__ import annotations

import re
from typing import Final

from planner.launches.record import LaunchError
from planner.launches.shell.patterns import (
    ARRAY,
    BLANKS,
    IN_QUOTES,
    NAME,
    NOTHING,
    OPERATOR,
    PLAIN,
    POWERSHELL_NAME,
    REDIRECT,
    SIMPLE,
)
from planner.launches.shell.tokens import Heredoc, Lexed, Part, Redirect, Token, Word

_DEEPEST: Final = 40
MOST_WORDS: Final = 4096


def lex(text: str, *, first_line: int = 1, powershell: bool = False) -> Lexed:
    """The tokens of a shell text.

    Raises:
        LaunchError: a quotation mark or a bracket that is never closed; names the line where it opens.
    """
    return _Lexer(text, first_line, powershell).run()


class _Lexer:
    def __init__(self, text: str, first_line: int, powershell: bool, depth: int = 0) -> None:
        self.text, self.at, self.line = text, 0, first_line
        self.powershell, self.depth = powershell, depth
        self.run_length = 0
        self.tokens: list[Token | Redirect] = []
        self.comments: list[tuple[int, str]] = []
        self.pending: list[tuple[Redirect, bool]] = []
        if depth > _DEEPEST:
            raise LaunchError(f"line {first_line}: brackets nested too deep", form="shell")

    def run(self) -> Lexed:
        fresh = True
        while self.at < len(self.text):
            if fresh and not self.pending:
                self._skip_nothing()
                if self.at >= len(self.text):
                    break
            before = len(self.tokens)
            self._step()
            last = self.tokens[-1] if len(self.tokens) > before else None
            fresh = isinstance(last, Token) and last.operator == "\n"
        return Lexed(self.tokens, self.comments)

    def _skip_nothing(self) -> None:
        """Lines of blanks and comments at once; they end the command before them as one line end does."""
        found = NOTHING.match(self.text, self.at)
        if found is None:
            return
        for line in found[0].split("\n")[:-1]:
            bare = line.lstrip()
            if bare:
                self.comments.append((self.line, bare[1:500].strip()))
            self.line += 1
        self.at = found.end()

    def _step(self) -> None:
        text = self.text
        simple = SIMPLE.match(text, self.at)
        if simple:
            word = Word(self.line, [Part("text", simple[0], False)])
            self.at = simple.end()
            self._add(word)
            return
        blanks = BLANKS.match(text, self.at)
        if blanks:
            self.at = blanks.end()
            return
        here = text[self.at]
        if text.startswith("\\\n", self.at):
            self.at += 2
            self.line += 1
            return
        if here == "#":
            end = text.find("\n", self.at)
            end = len(text) if end < 0 else end
            self.comments.append((self.line, text[self.at + 1 : min(end, self.at + 500)].strip()))
            self.at = end
            return
        redirect = REDIRECT.match(text, self.at)
        if redirect and not text.startswith(("<(", ">("), self.at):
            self._redirect(redirect)
            return
        operator = OPERATOR.match(text, self.at)
        if operator and operator[0] in ("&>", "&>>"):
            self.at = operator.end()
            self._blank()
            self.tokens.append(Redirect(">", self._word()))
            return
        if operator:
            self.tokens.append(Token(self.line, operator=operator[0]))
            self.run_length = 0
            self.at = operator.end()
            if operator[0] == "\n":
                self.line += 1
                self._read_heredocs()
            return
        word = self._word()
        if word.array is None and not word.quoted and word.literal == " ":
            return
        self._add(word)

    def _add(self, word: Word) -> None:
        self.tokens.append(Token(word.line, word=word))
        self.run_length += 1
        if self.run_length > MOST_WORDS:
            raise LaunchError(f"line {word.line}: a command of more than {MOST_WORDS:,} words", form="shell")

    def _blank(self) -> None:
        blanks = BLANKS.match(self.text, self.at)
        if blanks:
            self.at = blanks.end()

    def _redirect(self, found: re.Match[str]) -> None:
        self.at = found.end()
        operator = found[0].lstrip("0123456789")
        self._blank()
        target = self._word()
        redirect = Redirect(operator, target)
        self.tokens.append(redirect)
        if operator in ("<<", "<<-"):
            self.pending.append((redirect, operator == "<<-"))

    def _read_heredocs(self) -> None:
        for redirect, dashed in self.pending:
            stop = "".join(part.text for part in redirect.target.parts)
            start, lines = self.line, []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                self.line += 1
                if (line.lstrip("\t") if dashed else line) == stop:
                    break
                lines.append(line.lstrip("\t") if dashed else line)
            redirect.heredoc = Heredoc("\n".join(lines) + "\n", start, not redirect.target.quoted)
        self.pending = []

    def _word(self) -> Word:
        word = Word(self.line)
        text = self.text
        while self.at < len(text):
            here = text[self.at]
            if here.isspace() or here in ";&|)" or (here in "<>" and not text.startswith(("<(", ">("), self.at)):
                break
            if here == "(":
                if not self._open_array(word):
                    break
                return word
            if here in "<>":
                self.at += 1
                word.parts.append(Part("command", self._bracketed("(", ")"), False))
            elif here == "'":
                self._single(word)
            elif here == '"':
                self._double(word)
            elif here == "\\":
                self._escaped(word)
            elif here == "$":
                self._dollar(word, quoted=False)
            elif here == "`" and not self.powershell:
                word.parts.append(Part("command", self._until_backquote(), False))
            else:
                run = PLAIN.match(text, self.at)
                piece = run[0] if run else here
                self.at += len(piece)
                word.parts.append(Part("text", piece, False))
        return word

    def _open_array(self, word: Word) -> bool:
        """A=( ... ): its words; any other bracket ends the word."""
        if not (word.literal is not None and ARRAY.match(word.literal)):
            return False
        inner_line = self.line
        body = self._bracketed("(", ")")
        inner = _Lexer(body, inner_line, self.powershell, self.depth + 1).run()
        word.array = [token.word for token in inner.tokens if isinstance(token, Token) and token.word is not None]
        return True

    def _single(self, word: Word) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise _unclosed(self.line)
        self._add_quoted(word, self.text[self.at + 1 : end])
        self.at = end + 1

    def _add_quoted(self, word: Word, piece: str) -> None:
        word.parts.append(Part("text", piece, True))
        word.quoted = True
        self.line += piece.count("\n")

    def _double(self, word: Word) -> None:
        opened, text = self.line, self.text
        self.at += 1
        word.quoted = True
        word.parts.append(Part("text", "", True))
        while True:
            if self.at >= len(text):
                raise _unclosed(opened)
            run = IN_QUOTES.match(text, self.at)
            if run:
                word.parts.append(Part("text", run[0], True))
                self.at = run.end()
                continue
            here = text[self.at]
            if here == '"':
                self.at += 1
                return
            if here == "\n":
                self._add_quoted(word, here)
                self.at += 1
            elif here == "\\":
                after = text[self.at + 1 : self.at + 2]
                if after == "\n":
                    self.line += 1
                else:
                    word.parts.append(Part("text", after if after in '$`"\\' else here + after, True))
                self.at += 2
            elif here == "$":
                self._dollar(word, quoted=True)
            elif self.powershell:
                self.at += 1
            else:
                word.parts.append(Part("command", self._until_backquote(), True))

    def _escaped(self, word: Word) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if after == "\n":
            self.line += 1
        elif self.powershell and after:
            word.parts.append(Part("text", "\\" + after, False))
        else:
            word.parts.append(Part("text", after, False))

    def _dollar(self, word: Word, *, quoted: bool) -> None:
        text = self.text
        if text.startswith("$((", self.at):
            self.at += 1
            inner = self._bracketed("(", ")")
            arithmetic = inner.startswith("(") and inner.endswith(")")
            word.parts.append(Part("sum", inner[1:-1], quoted) if arithmetic else Part("command", inner, quoted))
        elif text.startswith("$(", self.at):
            self.at += 1
            word.parts.append(Part("command", self._bracketed("(", ")"), quoted))
        elif text.startswith("${", self.at):
            self.at += 1
            inner = self._bracketed("{", "}")
            found = POWERSHELL_NAME.fullmatch(inner)
            word.parts.append(Part("variable", found[1] if found else inner, quoted))
        elif text.startswith("$'", self.at) and not quoted:
            self.at += 1
            self._single(word)
        else:
            self.at += 1
            found = (POWERSHELL_NAME.match(text, self.at) if self.powershell else None) or None
            name = NAME.match(text, self.at)
            if found:
                self.at = found.end()
                word.parts.append(Part("variable", found[1], quoted))
            elif name:
                self.at = name.end()
                word.parts.append(Part("variable", name[0], quoted))
            else:
                word.parts.append(Part("text", "$", quoted))

    def _until_backquote(self) -> str:
        opened, start = self.line, self.at + 1
        end = self.text.find("`", start)
        if end < 0:
            raise LaunchError(f"line {opened}: a back quote is never closed", form="shell")
        body = self.text[start:end]
        self.line += body.count("\n")
        self.at = end + 1
        return body

    def _bracketed(self, left: str, right: str) -> str:
        """What stands between the bracket here and the one that closes it, quotes respected."""
        opened, start, depth, text = self.line, self.at + 1, 0, self.text
        pattern = re.compile(rf"[{re.escape(left + right)}]|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|#|\n", re.DOTALL)
        at = self.at
        while True:
            found = pattern.search(text, at)
            if found is None:
                raise LaunchError(f"line {opened}: a bracket {left} is never closed", form="shell")
            mark, at = found[0], found.end()
            self.line += mark.count("\n")
            if mark == "#" and left == "(" and text[found.start() - 1].isspace():
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif mark == left:
                depth += 1
            elif mark == right:
                depth -= 1
                if depth == 0:
                    self.at = at
                    return text[start : at - 1]


def _unclosed(line: int) -> LaunchError:
    return LaunchError(f"line {line}: the quote that opens here is never closed", form="shell")
