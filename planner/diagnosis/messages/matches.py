"""Find the wordings in a cleaned text, and join those that belong to one message, without looking around it yet."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.diagnosis.messages.wordings import Family, Pattern, families
from planner.diagnosis.messages.wordings.pattern import figures_of
from planner.diagnosis.sizes import Figure

_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}
# No wording is longer than this.
_LONGEST_SPAN = 600
# Nothing that is further back bears on a message: the widest gap of a family, and a wording.
RECALL_CHARS = 4_600
_NOWHERE = -1_000_000


@dataclass(frozen=True, slots=True)
class Seam:
    """Where the reading of a text in pieces goes on, in characters of the cleaned piece.

    Attributes:
        consumed: for each family, where the last match begins that belongs to a message read before.
        low: messages that begin before it were read with the piece before.
        bare_end: the end of the last bare wording that was kept.
    """

    consumed: tuple[int, ...] = ()
    low: int = _NOWHERE
    bare_end: int = _NOWHERE


@dataclass(slots=True)
class MatchGroup:
    """A message while it is put together; positions are in the cleaned passage.

    Attributes:
        wrapped_by: the kind of an engine's line that only wraps this torch message.
        wrapper: that engine.
        limit: where the next message begins.
    """

    family: Family
    start: int
    end: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    wrapped_by: str = ""
    wrapper: str = ""
    limit: int = 0

    def accepts(self, pattern: Pattern, start: int) -> bool:
        """Whether a match at `start` belongs to this message: near, and not a second one of its kind."""
        return start - self.end <= self.family.gap and (pattern.repeats or pattern not in self.patterns)

    def add(self, pattern: Pattern, match: re.Match[str]) -> None:
        """Take over the figures of the match; the more exact of two readings stays."""
        self.start, self.end = min(self.start, match.start()), max(self.end, match.end())
        self.spans.append(match.span())
        self.patterns.append(pattern)
        for name, figure in figures_of(match).items():
            if pattern.repeats:
                _gather(self.figures, name, figure)
            elif name not in self.figures or self.figures[name].margin_bytes > figure.margin_bytes:
                self.figures[name] = figure

    @property
    def last(self) -> int:
        """Where the last of its matches begins."""
        return max(start for start, _ in self.spans)

    @property
    def kind(self) -> str:
        """The most telling of the wordings: the first in the family's order."""
        own = {p.kind for p in self.patterns if not p.attach_only}
        return next(p.kind for p in self.family.patterns if p.kind in own)


def _gather(figures: dict[str, Figure], name: str, figure: Figure) -> None:
    """Add to the sum, and to the list, of a figure that occurs several times in one message."""
    if name not in figures or not isinstance(figure.value, int):
        figures[name] = figure
        return
    total, listed = figures[name], figures.get(name.replace("_bytes", "_list"))
    values = listed.value if listed is not None else (total.value,)
    if isinstance(values, tuple) and isinstance(total.value, int):
        first = tuple(v for v in values if isinstance(v, int))
        figures[name.replace("_bytes", "_list")] = Figure(value=(*first, figure.value))
        figures[name] = Figure(
            value=total.value + figure.value, margin_bytes=total.margin_bytes + figure.margin_bytes, text=total.text
        )


def match_groups(body: str) -> list[MatchGroup]:
    """The messages of a cleaned text in its order: of the most specific family where two claim the same words."""
    return read_piece(body, Seam(), len(body) + 1, 0)[0]


def read_piece(body: str, seam: Seam, high: int, recall: int) -> tuple[list[MatchGroup], Seam]:
    """The messages of a piece that begin from `seam.low` and before `high`, and the seam to the next piece.

    Pieces overlap. Messages of a text in pieces are the same as those of the text as a whole, since each family's
    matches are joined from where a message begins: the next piece starts from the matches after `seam.consumed`.

    Args:
        recall: what begins from here on is read again with the next piece, so that it can see its neighbours.
    """
    low = body.lower() if body.isascii() else body.translate(_LOWER)
    groups: list[MatchGroup] = []
    claimed: list[tuple[int, int]] = []
    consumed = []
    for index, family in enumerate(families()):
        before = seam.consumed[index] if seam.consumed else _NOWHERE
        of_family = list(_groups(family, body, low, before))
        consumed.append(max((d.last for d in of_family if d.start < recall), default=before))
        own = [d for d in of_family if not _overlaps(d.spans[0], claimed)]
        groups += own
        for group in own:
            for span in group.spans:
                insort(claimed, span)
    kept = _without_yielding(groups, seam)
    bare = (d.end for d in kept if d.family.yields and d.start < high)
    following = Seam(tuple(consumed), high, max(bare, default=seam.bare_end))
    found = _bounded(_unwrapped(kept), len(body))
    return [d for d in found if seam.low <= d.start < high], following


def _near(pattern: Pattern, low: str) -> Iterator[tuple[int, int]]:
    """The stretches of the lower-case text in which the pattern can match: around its needles."""
    places = sorted(
        (max(0, at - pattern.reach), at + len(needle) + pattern.reach)
        for needle in pattern.needles
        for at in _places(needle, low)
    )
    begin = end = -1
    for first, last in places:
        if first > end:
            if end >= 0:
                yield begin, end
            begin = first
        end = max(end, last)
    if end >= 0:
        yield begin, end


def _places(needle: str, low: str) -> Iterator[int]:
    at = low.find(needle)
    while at >= 0:
        yield at
        at = low.find(needle, at + len(needle))


def _found(pattern: Pattern, body: str, low: str) -> Iterator[re.Match[str]]:
    """The matches of a pattern in the text, none within another: what `finditer` finds, in less time."""
    if not pattern.begins_with_needle:
        for begin, end in _near(pattern, low):
            yield from pattern.compiled.finditer(body, begin, end)
        return
    done = 0
    for at in _places(pattern.needles[0], low):
        match = pattern.compiled.match(body, at) if at >= done else None
        if match is not None:
            yield match
            done = match.end()


def _matches(family: Family, body: str, low: str, before: int) -> list[tuple[int, int, Pattern, re.Match[str]]]:
    """The family's matches that begin after `before`, in the order of the text, then of its patterns."""
    found = [
        (match.start(), index, pattern, match)
        for index, pattern in enumerate(family.patterns)
        for match in _found(pattern, body, low)
        if match.start() > before
    ]
    return sorted(found, key=lambda m: m[:2])


def _groups(family: Family, body: str, low: str, before: int) -> Iterator[MatchGroup]:
    current: MatchGroup | None = None
    waiting: dict[Pattern, re.Match[str]] = {}
    for start, _, pattern, match in _matches(family, body, low, before):
        if current is not None and current.accepts(pattern, start):
            current.add(pattern, match)
        elif pattern.attach_only:
            waiting[pattern] = match
        else:
            if current is not None:
                yield current
            current = MatchGroup(family, start, match.end())
            current.add(pattern, match)
            for early, one in waiting.items():
                if start - one.end() <= family.gap and early not in current.patterns:
                    current.add(early, one)
            waiting = {}
    if current is not None:
        yield current


def _overlaps(span: tuple[int, int], claimed: list[tuple[int, int]]) -> bool:
    """Whether a span shares words with one of the sorted spans."""
    start, end = span
    near = claimed[bisect_left(claimed, (start - _LONGEST_SPAN, 0)) : bisect_left(claimed, (end, 0))]
    return any(start < high for _, high in near)


def _without_yielding(groups: list[MatchGroup], seam: Seam) -> list[MatchGroup]:
    """The groups in order, without bare wordings that stand next to a message which says more."""
    ordered = sorted(groups, key=lambda d: (d.start, d.end))
    firm = [d for d in ordered if not d.family.yields]
    kept: list[MatchGroup] = []
    index, reach, last = 0, _NOWHERE, seam.bare_end
    for group in ordered:
        if not group.family.yields:
            kept.append(group)
            continue
        if group.start < seam.low:
            continue
        gap = group.family.gap
        while index < len(firm) and firm[index].start - gap <= group.end:
            reach = max(reach, firm[index].end)
            index += 1
        if group.start > max(reach, last) + gap:
            kept.append(group)
            last = group.end
    return kept


def _unwrapped(groups: list[MatchGroup]) -> list[MatchGroup]:
    """The groups, with engines' lines that only wrap a torch message turned into a remark on that message."""
    torch = [d for d in groups if d.family.program.startswith("pytorch")]
    starts = [d.start for d in torch]
    kept = []
    for group in groups:
        near: list[MatchGroup] = []
        if group.family.wraps:
            gap = group.family.gap
            near = torch[bisect_left(starts, group.start - gap) : bisect_left(starts, group.end + gap)]
        for one in near:
            if not one.wrapped_by:
                one.wrapped_by, one.wrapper = group.kind, group.family.program
        if not near:
            kept.append(group)
    return kept


def _bounded(groups: list[MatchGroup], end: int) -> list[MatchGroup]:
    for group in reversed(groups):
        group.limit = max(group.end, end)
        end = group.start
    return groups
