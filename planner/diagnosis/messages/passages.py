"""Find the passages of a text that may hold a message, in bounded memory, whatever the text's size or line length.

The text is read in chunks of a megabyte. Each is searched for the needles of all patterns; what surrounds a hit
becomes a passage, which alone is parsed. A run of hits near the end of a chunk waits for the next one. A run that is
too long is given out in passages that overlap; each owns the messages that begin in its part of the run.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import BinaryIO

from planner.diagnosis.messages.anchors import COMMON, HEX, anchors, bare_anchors, number_anchors, plan

CHUNK_BYTES = 1 << 20
# A message with its process list and table is shorter than this; what stands before and after gives its context.
EDGE_CHARS = 24_576
BEFORE_CHARS = 9_000
AFTER_CHARS = 6_000
# More than what stands before, so that no message lies in two passages.
JOIN_CHARS = 10_000
# A passage begins with a line, where one begins so near: few messages begin within one.
LINE_CHARS = 2_000
PASSAGE_CHARS = 1 << 18
# What is kept of an unrecognised text to show the lines most like a message.
TAIL_CHARS = 1 << 18
# Passages of so many characters at the start, and as many at the end, are read; the ones between are counted.
KEPT_CHARS = 8 << 20
# A program in a crash loop prints the same again: so many different passages are compared, and held only once.
COMPARED_PASSAGES = 64

# Terminal colours and titles; each alternative stops at the next escape character.
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]{0,64}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of text around hits.

    Attributes:
        start: the offset of `text` in the whole text, in characters after colours are removed.
        line: the line number of the first character, from 1.
        low, high: the part of `text` whose messages are this passage's, by where they begin.
        is_continued: the run of hits goes on from the passage before.
    """

    text: str
    start: int
    line: int
    low: int
    high: int
    is_continued: bool


@dataclass(slots=True)
class Scan:
    """The passages of one text, and counts of what was seen; `text` is the whole of it if it is short, `tail` its "
    "end."""

    first: list[Passage] = field(default_factory=list)
    last: deque[Passage] = field(default_factory=deque)
    first_chars: int = 0
    last_chars: int = 0
    skipped: int = 0
    chars: int = 0
    lines: int = 0
    text: str = ""
    tail: str = ""
    compared: dict[str, str] = field(default_factory=dict)

    def add(self, passage: Passage) -> None:
        """Keep the passage; when there are too many, give up the oldest after the first ones."""
        held = self.compared.get(passage.text)
        if held is not None and not self.last:
            self.first.append(replace(passage, text=held))
            return
        if self.first_chars < KEPT_CHARS:
            if len(self.compared) < COMPARED_PASSAGES:
                self.compared[passage.text] = passage.text
            self.first.append(passage)
            self.first_chars += len(passage.text)
            return
        self.last.append(passage)
        self.last_chars += len(passage.text)
        while self.last_chars > KEPT_CHARS:
            self.last_chars -= len(self.last.popleft().text)
            self.skipped += 1

    @property
    def passages(self) -> list[Passage]:
        """First and last passages, in the order of the text."""
        return [*self.first, *self.last]


def decode(stream: BinaryIO) -> Iterator[str]:
    """The stream's text in chunks, colours removed; bytes that are no UTF-8 become replacement characters.

    A byte-order mark selects UTF-16 (what Windows PowerShell writes with `>`).
    """
    head = stream.read(4)
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    held = ""
    data = head
    while True:
        block = stream.read(CHUNK_BYTES)
        text = held + decoder.decode(data + block, final=not block)
        data = b""
        # an escape sequence may be cut by the chunk's end
        cut = text.rfind("\x1b", len(text) - 600) if block else -1
        text, held = (text, "") if cut < 0 else (text[:cut], text[cut:])
        yield _ANSI.sub("", text) if "\x1b" in text else text
        if not block:
            return


def scan(chunks: Iterable[str]) -> Scan:
    """The passages of the text that comes in `chunks`."""
    result = Scan()
    buffer, base, line = "", 0, 1
    run = _Run()
    for chunk in _with_end(chunks):
        final = chunk is None
        buffer += chunk or ""
        limit = len(buffer) if final else max(0, len(buffer) - EDGE_CHARS)
        if not final and limit == 0:
            continue
        run = _take(buffer, base, line, limit, run, final, result)
        if final:
            break
        cut = max(0, run.done - base - BEFORE_CHARS - LINE_CHARS)
        line += buffer.count("\n", 0, cut)
        base += cut
        buffer = buffer[cut:]
    result.chars, result.lines = base + len(buffer), line + buffer.count("\n")
    result.text = buffer if base == 0 else ""
    result.tail = buffer[-TAIL_CHARS:]
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """How far the text is given out; `is_continued`: what follows goes on with the run of hits before it."""

    done: int = 0
    is_continued: bool = False


def _with_end(chunks: Iterable[str]) -> Iterator[str | None]:
    yield from chunks
    yield None


def _take(buffer: str, base: int, line: int, limit: int, run: _Run, final: bool, result: Scan) -> _Run:
    """Add the passages around the hits in the buffer from `run.done` to `limit`, and say where to go on.

    A run of hits that may go on behind `limit` is left for the next time.
    """
    # lower() of a few letters is longer (İ): offsets would shift; ASCII lower-casing keeps them
    lines = buffer.lower() if buffer.isascii() else buffer.translate(_LOWER)
    counted, counted_to, is_continued = line, 0, run.is_continued
    for low, last, following in _spans(_hits(lines, max(0, run.done - base), limit)):
        if following is None and not final and limit - last <= JOIN_CHARS:
            return _Run(base + low, is_continued)
        begin = _line_start(buffer, max(0, low - BEFORE_CHARS))
        is_cut = following is not None and following - last <= JOIN_CHARS
        high = following if is_cut and following is not None else min(len(buffer), last + AFTER_CHARS)
        end = min(len(buffer), high + EDGE_CHARS) if is_cut else high
        counted += buffer.count("\n", counted_to, begin)
        counted_to = begin
        result.add(
            Passage(
                text=buffer[begin:end],
                start=base + begin,
                line=counted,
                low=low - begin if is_continued else 0,
                high=high - begin,
                is_continued=is_continued,
            )
        )
        is_continued = is_cut
    return _Run(base + limit)


_WHITE: dict[int, int | str | None] = {ord(c): " " for c in "\t\n\r\v\f\x85\xa0"}
_LOWER: dict[int, int | str | None] = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}


# So often a short text may stand in a buffer and be compared; the anchors of one that stands more often may be there.
_MOST_PLACES = 512


def _hits(lines: str, start: int, limit: int) -> list[int]:
    """Where anchors stand, in order: one in a hundred characters is enough to mark a place."""
    shapes = _shapes(lines) if len(lines) > _PROBE_CHARS else None
    if len(lines) <= _PROBE_CHARS:
        possible = list(anchors())
    elif shapes is None:
        possible = list(_possible(lines))
    else:
        possible = [*number_anchors(), *(anchor for anchor, bare in bare_anchors() if bare in shapes)]
    flat = lines.translate(_WHITE) if possible else ""
    return sorted(at for anchor in possible for at in _places(anchor, flat, start, limit))


def _places(anchor: str, flat: str, start: int, limit: int) -> Iterator[int]:
    at = flat.find(anchor, start)
    while 0 <= at < limit:
        yield at
        at = flat.find(anchor, at + 100)


def _possible(lines: str) -> Iterator[str]:
    """The anchors that the text may hold: those that it holds without white space and vowels."""
    short = lines.translate(COMMON)
    for gram, members in plan():
        at, places, left = short.find(gram), 0, members
        while at >= 0 and left and places < _MOST_PLACES:
            here = [one for one in left if at >= one[2] and short.startswith(one[1], at - one[2])]
            for one in here:
                yield one[0]
            left = tuple(one for one in left if one not in here) if here else left
            at, places = short.find(gram, at + 1), places + 1
        if at >= 0:
            yield from (anchor for anchor, _, _ in left)


# A log that repeats its lines has few shapes; one that does not is searched whole.
_MOST_SHAPES_PART = 4
# What the beginning of a text does not repeat, the rest is not asked for.
_PROBE_CHARS = 1 << 16


def _shapes(lines: str) -> str | None:
    """Every two lines that follow one another, without hexadecimal digits and each pair once; None when most differ.

    A log's lines differ by their numbers and identifiers: what a megabyte of them can hold is soon seen.
    """
    if len(lines) > 2 * _PROBE_CHARS and _shapes(lines[:_PROBE_CHARS]) is None:
        return None
    plain = lines.translate(HEX).split("\n")
    pairs = set(pairwise(plain))
    if len(pairs) * _MOST_SHAPES_PART > len(plain) + 64:
        return None
    return "\n".join(f"{one} {other}" for one, other in pairs).translate(_WHITE) + f" {plain[0]} {plain[-1]}"


def _spans(hits: list[int]) -> Iterator[tuple[int, int, int | None]]:
    """Runs of hits that are close to one another, none longer than a passage may be: first, last, the one after."""
    low = high = -1
    for hit in hits:
        if low >= 0 and hit - high <= JOIN_CHARS and hit - low <= PASSAGE_CHARS:
            high = hit
            continue
        if low >= 0:
            yield low, high, hit
        low = high = hit
    if low >= 0:
        yield low, high, None


def _line_start(text: str, at: int) -> int:
    """The start of the line that `at` is in, if it is near; else `at`."""
    newline = text.rfind("\n", max(0, at - LINE_CHARS), at)
    return newline + 1 if newline >= 0 else at
