"""The texts of which every message contains one, and the quick way to find that none is there."""

from __future__ import annotations

from collections import Counter
from functools import cache

from planner.diagnosis.messages.wordings import families

# Structured captures that have their own readers.
TABLE_NEEDLES = (
    "nvidia-smi",
    "memory.total",
    "used_gpu_memory",
    "memory summary, device id",
    "allocated_bytes.all.current",
    "mb gpu memory",
    "mib /",
)


@cache
def anchors() -> tuple[str, ...]:
    """The shortest set of lower-case texts of which every message contains one."""
    needles = {
        needle for family in families() for p in family.patterns if not p.attach_only for needle in p.needles
    } | set(TABLE_NEEDLES)
    return tuple(sorted(n for n in needles if not any(other != n and other in n for other in needles)))


HEX: dict[int, int | str | None] = {ord(c): None for c in "0123456789abcdef"}
# An anchor of which so little is left without hexadecimal digits says nothing of itself.
_SHORTEST_BARE = 3
_GRAM = 3
# Vowels and white space: a text without them is shorter, and what is left tells more.
COMMON: dict[int, int | str | None] = {ord(c): None for c in "aeiou \t\n\r\v\f\x85\xa0"}

# A short text, and the anchors that contain it: the anchor, itself without vowels, the place of the text in it.
Plan = tuple[tuple[str, tuple[tuple[str, str, int], ...]], ...]


@cache
def bare_anchors() -> tuple[tuple[str, str], ...]:
    """Each anchor with itself without hexadecimal digits, where something is left of it."""
    pairs = ((anchor, anchor.translate(HEX)) for anchor in anchors())
    return tuple((anchor, bare) for anchor, bare in pairs if len(bare) >= _SHORTEST_BARE)


@cache
def number_anchors() -> tuple[str, ...]:
    """The anchors that are little but digits."""
    told = {anchor for anchor, _ in bare_anchors()}
    return tuple(anchor for anchor in anchors() if anchor not in told)


@cache
def plan() -> Plan:
    """Few short texts of which every anchor without its vowels contains one.

    To look for these takes less time than to look for some hundred anchors. The one that most of the remaining anchors
    share is taken first.
    """
    left = {anchor: anchor.translate(COMMON) for anchor in anchors()}
    found = []
    while left:
        shared = Counter(gram for text in left.values() for gram in _grams(text))
        gram = min(shared, key=lambda g: (-shared[g], g))
        members = tuple((anchor, text, text.index(gram)) for anchor, text in left.items() if gram in text)
        found.append((gram, members))
        for anchor, _, _ in members:
            del left[anchor]
    return tuple(found)


def _grams(text: str) -> set[str]:
    """The parts of a text of some letters; a shorter text is its own."""
    return {text[i : i + _GRAM] for i in range(max(1, len(text) - _GRAM + 1))}
