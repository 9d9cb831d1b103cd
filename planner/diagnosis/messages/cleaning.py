"""The cleaned form of a passage, in which patterns are searched, and the way back to where its words stood."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from planner.diagnosis.messages.wordings.pattern import KILLED_LINE

# What log collectors, launchers and engines put before each line (Compose, CRI, journald, mpirun, srun -l, Ray and vLLM
# workers, torchrun), and what quoting and frames put there (mail, Markdown, rich's panels).
_LINE_PREFIX = re.compile(
    r"^(?:[ \t]{0,40}(?:"
    r"[>|\u2502\u2503\u2551\u250a\u2506\u2771\u276f](?=[ \t>|\u2502\n\r]|$)"
    r"|[\w.-]{1,64} {1,8}\| "
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}Z? (?:stdout|stderr) [FP] "
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? (?!TP\d|DP\d)"
    r"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d [\w.-]{1,64} (?=[\w./@-]{1,64}(?:\[\d{1,10}\])?: )"
    r"|(?:python\d?(?:\.\d{1,2})?|docker|bash|sh)\[\d{1,10}\]: "
    r"|\([\w =]{0,60}pid=\d{1,10}[^)\n]{0,60}\)"
    r"|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,60}:\d{1,6}\](?= |$)"
    r"|\[rank\d{1,4}\]:|\[\d{1,4},\d{1,5}\]<std(?:err|out)>:?|\d{1,5}: (?=[ \w])"
    r"|\[[\w.-]{1,40}\] (?=[ \t]{0,8}(?:torch|File|Trace|Runtime|CUDA))"
    r")){1,8}",
    re.MULTILINE,
)
_FRAME_END = re.compile(r"[ \t]{0,200}[|\u2502\u2503\u2551][ \t]{0,8}$", re.MULTILINE)
_RULES = re.compile(
    r"^[ \t]{0,40}[+\u256d\u2570\u250c\u2514\u251c][\u2500\u2550 \w().-]{0,200}?[\u2500\u2550-]{3,200}[^\n]{0,40}$",
    re.MULTILINE,
)
_FRAMED = ("|", "\u2502", "\u2503", "\u2551")
# What shells print for signal 9, in the languages that they speak.
_KILLED_WORDS = (
    "Killed",
    "已杀死",
    "已終止",
    "Getötet",
    "Processus arrêté",
    "Tué",
    "Terminado (killed)",
    "Убито",
    "強制終了",
    "Ucciso",
    "죽었음",
    "Zabity",
    "Öldürüldü",
)
_ONLY_KILLED = re.compile(
    rf"^([ \t]{{0,20}})(?:{'|'.join(map(re.escape, _KILLED_WORDS))})(?=[ \t]{{0,20}}\r?$)", re.MULTILINE
)
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:(?:\\[\w .()+@-]{1,80}){1,20}")
_ESCAPES = {"\\n": "\n ", "\\r": "  ", "\\t": "  ", '\\"': ' "'}
_WORD = re.compile(r"\S+")
# Some words and the white space after them: how finely the way back is remembered (a place for each word would take
# most of the time of a long log).
_STRETCH = re.compile(r".{1,400}\S*\s*", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_EXCERPT_CHARS = 1_200


@dataclass(frozen=True, slots=True)
class Body:
    """Text with runs of white space as single spaces, and the way back to the text it came from.

    Attributes:
        padded: the text before white space was collapsed: as long as the raw text, character for character.
        starts, origins: where every few hundred characters begin in `text` and in `padded`.
    """

    text: str
    padded: str
    starts: tuple[int, ...]
    origins: tuple[int, ...]

    def origin(self, offset: int) -> int:
        """The place in the uncleaned text of the character at `offset`."""
        if not self.starts:
            return 0
        index = max(0, bisect_right(self.starts, offset) - 1)
        at = self.starts[index]
        for word in _WORD.finditer(self.padded, self.origins[index]):
            if offset <= at + len(word.group()):
                return word.start() + max(0, offset - at)
            at += len(word.group()) + 1
        return len(self.padded)

    def at(self, origin: int) -> int:
        """The offset in `text` of the first character that stands at `origin` in the uncleaned text, or after it."""
        if not self.origins:
            return 0
        index = max(0, bisect_right(self.origins, origin) - 1)
        at = self.starts[index]
        for word in _WORD.finditer(self.padded, self.origins[index]):
            if origin < word.end():
                return at + max(0, origin - word.start())
            at += len(word.group()) + 1
        return len(self.text)


def clean(raw: str) -> Body:
    """The body of a passage: line prefixes blanked, JSON escapes undone, white space collapsed."""
    text = raw
    if "\\" in text:
        # a folder's name may begin like an escape: C:\\tools\\nodes.py
        text = _WINDOWS_PATH.sub(lambda m: m.group().replace("\\", "/"), text)
        for escape, blank in _ESCAPES.items():
            text = text.replace(escape, blank)
    if "\n" in text:
        text = _blanked(_LINE_PREFIX, text)
        if any(sign in text for sign in _FRAMED):
            text = _blanked(_RULES, _blanked(_FRAME_END, text))
    elif text[:1] in (">", *_FRAMED):
        text = _blanked(_LINE_PREFIX, text)
    if KILLED_LINE in text:
        text = text.replace(KILLED_LINE, " ")
    if any(word in text for word in _KILLED_WORDS):
        text = _ONLY_KILLED.sub(lambda m: KILLED_LINE.rjust(len(m.group(1)) + 1).ljust(len(m.group())), text)
    pieces, starts, origins, at = [], [], [], 0
    for match in _STRETCH.finditer(text):
        piece = " ".join(match.group().split())
        if piece:
            pieces.append(piece)
            starts.append(at)
            origins.append(match.start())
            at += len(piece) + 1
    return Body(" ".join(pieces), text, tuple(starts), tuple(origins))


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda m: " " * len(m.group()), text)


def excerpt(text: str) -> str:
    """The text cut to a printable length, control and direction characters removed."""
    plain = _CONTROL.sub("", text)
    return plain if len(plain) <= _EXCERPT_CHARS else plain[: _EXCERPT_CHARS - 3] + "..."
