"""The lines of an unrecognised text that look most like the message that was meant."""

from __future__ import annotations

import re

_MOST_LINES = 4_000
_MOST_CHARS = 160
_WORDS = (
    (
        6,
        re.compile(
            r"\b(?:out of|insufficient|not enough|exhaust\w*|exceed\w*|too (?:large|small)|limit)\b", re.IGNORECASE
        ),
    ),
    (5, re.compile(r"\b(?:memory|alloc\w*|VRAM|RAM|OOM|killed|SIG[A-Z]{3,5})\b", re.IGNORECASE)),
    (4, re.compile(r"(?:\b|\w)(?:Error|Exception|Failure)\b|\b(?:ERROR|FATAL|CRITICAL)\b")),
    (
        3,
        re.compile(
            r"\b(?:fail(?:ed|ure|s)?|abort\w*|cannot|could not|unable|crash\w*|terminat\w*|refused)\b", re.IGNORECASE
        ),
    ),
    (2, re.compile(r"\b(?:GPU|CUDA|HIP|device|core dumped|exit(?:ed)?|code|status)\b")),
)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def likely_lines(text: str, *, most: int = 3) -> list[str]:
    """At most `most` lines, those with most words of a failure first, later ones before earlier ones."""
    lines = [line.strip() for line in text.splitlines()[-_MOST_LINES:]]
    scored = []
    for number, line in enumerate(lines):
        points = sum(weight for weight, pattern in _WORDS if pattern.search(line[:1_000]))
        if points >= 3:
            scored.append((points, number, line))
    best = sorted(scored, key=lambda one: (-one[0], -one[1]))
    return [_printable(line) for line in dict.fromkeys(line for _, _, line in best)][:most]


def _printable(line: str) -> str:
    plain = _UNPRINTABLE.sub("", line)
    return plain if len(plain) <= _MOST_CHARS else plain[: _MOST_CHARS - 3] + "..."
