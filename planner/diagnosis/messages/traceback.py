"""The frames of the traceback that a message ends, from whichever side of the message they stand on."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Frames as Python prints them, and as rich does (path:line in function).
_FRAME = re.compile(
    r'File "(?P<path>[^"\n]{1,400})", line \d{1,7}(?:, in (?P<function>[^\n]{1,120}))?'
    r"|(?:^|[ \t])(?P<rich>(?:/|\.{0,2}/|[A-Za-z]:[\\/])[^\s:]{1,300}\.py):\d{1,7} in (?P<rich_function>[\w.<>]{1,80})",
    re.MULTILINE,
)
_HEAD = re.compile(r"Traceback \(most recent call last\)")
# Two frames so far apart belong to different tracebacks.
_GAP_CHARS = 3_000
_CODE_CHARS = 700


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a traceback: file with forward slashes, function and the code that is printed under it."""

    path: str
    function: str
    code: str


def frames_around(text: str, start: int, end: int) -> list[Frame]:
    """The frames of the message at `start` to `end`, outermost first; empty where no traceback is printed.

    The traceback before the message counts, since Python prints it there; without one, that after it (logs that print
    the error first, and re-raised errors).
    """
    if not _has_frames(text):
        return []
    before = list(_FRAME.finditer(text, 0, start))
    heads = [m.start() for m in _HEAD.finditer(text, 0, start)]
    if heads:
        before = [m for m in before if m.start() > heads[-1]]
    else:
        cut = next((i for i in range(len(before) - 1, 0, -1) if _apart(before[i - 1], before[i])), 0)
        before = before[cut:]
    if before and start - before[-1].end() <= _GAP_CHARS:
        return _read(before, text, start)
    after = list(_FRAME.finditer(text, end))
    heads = [m.start() for m in _HEAD.finditer(text, end)]
    if len(heads) > 1:
        after = [m for m in after if m.start() < heads[1]]
    if not after or (heads[0] if heads else after[0].start()) - end > _GAP_CHARS:
        return []
    cut = next((i for i in range(1, len(after)) if _apart(after[i - 1], after[i])), len(after))
    return _read(after[:cut], text, len(text))


def all_frames(text: str) -> list[Frame]:
    """Every frame in the text, of whatever traceback."""
    return _read(list(_FRAME.finditer(text)), text, len(text)) if _has_frames(text) else []


def _has_frames(text: str) -> bool:
    return 'File "' in text or ".py:" in text


def _apart(one: re.Match[str], other: re.Match[str]) -> bool:
    return other.start() - one.end() > _GAP_CHARS


def _read(matches: list[re.Match[str]], text: str, end: int) -> list[Frame]:
    found = []
    for index, match in enumerate(matches):
        stop = matches[index + 1].start() if index + 1 < len(matches) else end
        path = (match["path"] or match["rich"]).replace("\\", "/")
        function = (match["function"] or match["rich_function"] or "").strip()
        found.append(Frame(path, function, text[match.end() : min(stop, match.end() + _CODE_CHARS)]))
    return found
