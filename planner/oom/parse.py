"""Passages to messages: find the wordings, and join those that belong to one message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from planner.oom.context import context_of
from planner.oom.formats import Family, Pattern, families
from planner.oom.formats.base import figures_of
from planner.oom.result import Message
from planner.oom.scan import Passage
from planner.oom.sizes import Figure
from planner.oom.tensors import with_tensor_size
from planner.oom.text import Body, clean, excerpt
from planner.oom.versions import torch_version

# A hostile log can hold any number of different messages; so many are told apart, the others counted.
MOST_MESSAGES = 1_000
_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}
_TIGHT_SPACE = re.compile(r" (?:\?|\{\d+,\d+\})?")


@dataclass(slots=True)
class _Draft:
    """A message while it is put together; positions are in the cleaned passage."""

    family: Family
    start: int
    end: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)

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
    def kind(self) -> str:
        """The most telling of the wordings: the first in the family's order."""
        order = [p.kind for p in self.family.patterns]
        return min((p.kind for p in self.patterns if not p.attach_only), key=order.index)


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


def messages_in(raw: str) -> list[Message]:
    """All messages of one short text, in its order; `offset` counts characters of that text."""
    body = clean(raw)
    drafts: list[_Draft] = []
    claimed: list[tuple[int, int, Family]] = []
    for family in families():
        for draft in _drafts(family, body.text):
            if not _is_claimed(draft, claimed):
                drafts.append(draft)
                claimed.extend((low, high, family) for low, high in draft.spans)
    drafts = sorted(_without_yielding(drafts), key=lambda d: d.start)
    messages = [_message(draft, body, raw) for draft in drafts]
    return _unwrapped(messages, {d.kind: d.family.gap for d in drafts if d.family.wraps})


def _drafts(family: Family, body: str) -> Iterator[_Draft]:
    low = body.lower() if body.isascii() else body.translate(_LOWER)
    matches = sorted(
        (
            (match.start(), index, pattern, match)
            for index, pattern in enumerate(family.patterns)
            if any(needle in low for needle in pattern.needles)
            for match in pattern.compiled.finditer(body)
        ),
        key=lambda m: m[:2],
    )
    current: _Draft | None = None
    waiting: dict[Pattern, re.Match[str]] = {}
    for start, _, pattern, match in matches:
        if current is not None and current.accepts(pattern, start):
            current.add(pattern, match)
        elif pattern.attach_only:
            waiting[pattern] = match
        else:
            if current is not None:
                yield current
            current = _Draft(family, start, match.end())
            current.add(pattern, match)
            for early, one in waiting.items():
                if start - one.end() <= family.gap and early not in current.patterns:
                    current.add(early, one)
            waiting = {}
    if current is not None:
        yield current


def _is_claimed(draft: _Draft, claimed: list[tuple[int, int, Family]]) -> bool:
    """Whether the draft's own opening words are part of another family's message."""
    start, end = draft.spans[0]
    return any(low < end and start < high for low, high, family in claimed if family is not draft.family)


def _without_yielding(drafts: list[_Draft]) -> list[_Draft]:
    """The drafts without bare wordings that stand next to a message which says more."""
    kept = [d for d in drafts if not d.family.yields]
    for draft in sorted((d for d in drafts if d.family.yields), key=lambda d: d.start):
        gap = draft.family.gap
        if not any(d.start - gap <= draft.end and draft.start <= d.end + gap for d in kept):
            kept.append(draft)
    return kept


def _message(draft: _Draft, body: Body, raw: str) -> Message:
    at = body.origin(draft.start)
    figures = dict(draft.figures)
    device = figures.get("device")
    backend = figures.pop("backend", None)
    words = {n: str(f.value) for n, f in figures.items() if isinstance(f.value, str) and n != "dtype"}
    figures = with_tensor_size({n: f for n, f in figures.items() if n not in words})
    if draft.family.program != "llama.cpp":
        figures.pop("device", None)
    message = Message(
        program=draft.family.program,
        kind=draft.kind,
        kinds=frozenset(p.kind for p in draft.patterns),
        version_hint=next((p.versions for p in draft.patterns if p.versions), None),
        figures=figures,
        device=device.value if device is not None and isinstance(device.value, int) else None,
        text=excerpt(body.text[draft.start : draft.end + 1]),
        offset=at,
        context={**context_of(raw, at), **words},
    )
    if not message.program.startswith("pytorch"):
        return message
    return _torch_details(message, draft, body.text, "" if backend is None else str(backend.value).upper())


def _torch_details(message: Message, draft: _Draft, body: str, backend: str) -> Message:
    """The message with its back end, the versions that print it, and figures that a line break cut within a word."""
    is_xpu = backend == "XPU" or "xpu_block_limit" in message.kinds
    program = "pytorch-xpu" if is_xpu else message.program
    context = {**message.context, **({"backend": backend} if backend else {})}
    around = body[max(0, draft.start - 40) : draft.end + 600]
    figures = {**_tight_figures(draft, around), **message.figures}
    hint = torch_version(around, program) or message.version_hint
    return replace(message, program=program, version_hint=hint, context=context, figures=figures)


def _tight_figures(draft: _Draft, around: str) -> dict[str, Figure]:
    """Figures that appear when all white space is taken out of text and patterns: terminals wrap within words."""
    known = {pattern.kind for pattern in draft.patterns}
    if "torch_tried" in known and known & {"torch_allocated", "torch_allocated_old", "mps_allocated"}:
        return {}
    found: dict[str, Figure] = {}
    tight = around.replace(" ", "")
    for pattern in draft.family.patterns:
        if pattern.kind in known or pattern.repeats or pattern.attach_only or "__size" not in pattern.regex:
            continue
        regex = _TIGHT_SPACE.sub("", pattern.regex).replace(r"\b", "").replace(r"\s?", "")
        match = re.search(regex, tight, re.IGNORECASE)
        if match is not None:
            found.update((name, f) for name, f in figures_of(match).items() if name.endswith("_bytes"))
    return found


def _unwrapped(messages: list[Message], wrappers: dict[str, int]) -> list[Message]:
    """The messages with engine lines that only wrap a torch message turned into the context of that message."""
    torch = [m for m in messages if m.program.startswith("pytorch")]
    kept = []
    wrapped: dict[int, str] = {}
    for message in messages:
        gap = wrappers.get(message.kind)
        near = [] if gap is None else [m for m in torch if abs(m.offset - message.offset) <= gap]
        if not near:
            kept.append(message)
        for m in near:
            wrapped.setdefault(m.offset, message.kind)
    return [
        replace(m, context={**m.context, "wrapped_by": wrapped[m.offset]}) if m in torch and m.offset in wrapped else m
        for m in kept
    ]


def read_passages(passages: Iterable[Passage], source: str) -> tuple[list[Message], int]:
    """The different messages of a text's passages, and how many further ones were only counted.

    A message that occurs again (every rank and every re-raise prints it) is counted in `repeated`.
    """
    found: dict[object, Message] = {}
    places: set[tuple[int, str]] = set()
    uncounted = 0
    for passage in passages:
        for message in messages_in(passage.text):
            place = (passage.start + message.offset, message.kind)
            if place in places:
                continue
            places.add(place)
            key = (message.program, message.kind, message.device, *((n, f.value) for n, f in message.figures.items()))
            if key in found:
                found[key] = replace(found[key], repeated=found[key].repeated + 1)
            elif len(found) < MOST_MESSAGES:
                line = passage.line + passage.text.count("\n", 0, message.offset)
                found[key] = replace(message, source=source, line=line, offset=place[0])
            else:
                uncounted += 1
    return list(found.values()), uncounted
