"""Passages to messages: the groups with their back end, version and context; repeated ones counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from planner.diagnosis.messages.cleaning import Body, clean, excerpt
from planner.diagnosis.messages.matches import RECALL_CHARS, MatchGroup, Seam, match_groups, read_piece
from planner.diagnosis.messages.passages import Passage
from planner.diagnosis.messages.surroundings import context_of, pid_of, rank_of
from planner.diagnosis.messages.tensor_size import with_tensor_size
from planner.diagnosis.messages.torch_release import torch_version
from planner.diagnosis.messages.wordings.pattern import figures_of
from planner.diagnosis.result import Message, Process
from planner.diagnosis.sizes import NUMBER, UNIT, Figure, read_size

# A hostile log can hold any number of different messages; so many are told apart, the others counted.
MOST_MESSAGES = 1_000
# So many passages are remembered, to count a passage that comes again without reading it.
MOST_KNOWN = 64
_PROCESS = re.compile(rf"Process (\d{{1,10}}) has ({NUMBER}\s?{UNIT}) memory in use", re.IGNORECASE)
_OPTIONAL_SPACE = re.compile(r" (?:\?|\{\d+,\d+\})?")


def messages_in(raw: str) -> list[Message]:
    """All messages of one short text, in its order; `offset` counts characters of that text."""
    body = clean(raw)
    return [_message(group, body, raw) for group in match_groups(body.text)]


def _message(group: MatchGroup, body: Body, raw: str) -> Message:
    at = body.origin(group.start)
    figures = dict(group.figures)
    device = figures.get("device")
    backend = figures.pop("backend", None)
    words = {n: str(f.value) for n, f in figures.items() if isinstance(f.value, str) and n != "dtype"}
    figures = with_tensor_size({n: f for n, f in figures.items() if n not in words})
    if group.family.program != "llama.cpp":
        figures.pop("device", None)
    message = Message(
        program=group.family.program,
        kind=group.kind,
        kinds=frozenset(p.kind for p in group.patterns),
        version_hint=next((p.versions for p in group.patterns if p.versions), None),
        figures=figures,
        device=device.value if device is not None and isinstance(device.value, int) else None,
        text=excerpt(body.text[group.start : group.end + 1]),
        offset=at,
        context={**_surroundings(group, body, raw, at), **words},
    )
    if not message.program.startswith("pytorch"):
        return message
    return _torch_details(message, group, body.text, "" if backend is None else str(backend.value).upper())


# When an engine prints the line that wraps a torch message.
_PHASES_OF_WRAPPERS = {"vllm_load": "load", "sglang_graph": "graph_capture"}


def _surroundings(group: MatchGroup, body: Body, raw: str, at: int) -> dict[str, str]:
    """What the lines around say; a prefix's rank and time are in the raw line."""
    program = group.wrapper or group.family.program
    context = context_of(body.padded, raw, at, body.origin(group.end), program)
    if group.wrapper:
        context.setdefault("engine", group.wrapper)
        context.setdefault("phase", _PHASES_OF_WRAPPERS[group.wrapped_by])
    named = {"rank": rank_of(raw, at), "pid": pid_of(raw, at)}
    return {**context, **{name: value for name, value in named.items() if value}}


def _torch_details(message: Message, group: MatchGroup, body: str, backend: str) -> Message:
    """The message with its back end, the versions that print it, and figures that a line break cut within a word."""
    is_xpu = backend == "XPU" or "xpu_block_limit" in message.kinds
    program = "pytorch-xpu" if is_xpu else message.program
    context = {**message.context, **({"backend": backend} if backend else {})}
    if group.wrapped_by:
        context["wrapped_by"] = group.wrapped_by
    rest = body[group.start : min(group.end + 600, group.limit)]
    figures = {**_figures_across_breaks(group, rest), **message.figures}
    processes = _processes(body[group.start : group.end + 1])
    hint = torch_version(body[max(0, group.start - 40) : group.start] + rest, program) or message.version_hint
    return replace(message, program=program, version_hint=hint, context=context, figures=figures, processes=processes)


def _processes(text: str) -> tuple[Process, ...]:
    """The processes that the message lists, with their PIDs."""
    found = []
    for match in _PROCESS.finditer(text):
        size = read_size(match.group(2)).value
        found.append(Process(pid=int(match.group(1)), size_bytes=size if isinstance(size, int) else None))
    return tuple(found)


def _figures_across_breaks(group: MatchGroup, around: str) -> dict[str, Figure]:
    """Figures that appear when all white space is taken out of text and patterns: terminals wrap within words."""
    known = {pattern.kind for pattern in group.patterns}
    whole = known & {"torch_unallocated", "torch_reserved_old", "torch_cached", "mps_allocated"}
    if "torch_tried" in known and whole and known & {"torch_allocated", "torch_allocated_old", "mps_allocated"}:
        return {}
    found: dict[str, Figure] = {}
    tight = around.replace(" ", "")
    for pattern in group.family.patterns:
        if pattern.kind in known or pattern.repeats or pattern.attach_only or "__size" not in pattern.regex:
            continue
        regex = _OPTIONAL_SPACE.sub("", pattern.regex).replace(r"\b", "").replace(r"\s?", "")
        match = re.search(regex, tight, re.IGNORECASE)
        if match is not None:
            found.update((name, f) for name, f in figures_of(match).items() if name.endswith("_bytes"))
    return found


def read_passages(passages: Iterable[Passage], source: str) -> tuple[list[Message], int]:
    """The different messages of a text's passages, and how many further ones were only counted.

    A message that occurs again (every rank and every re-raise prints it) is counted in `repeated`.
    """
    tally = _Tally(source)
    seam = _RawSeam()
    for passage in passages:
        seam = tally.read(passage, seam if passage.is_continued else _RawSeam())
    return _pools_merged([replace(m, repeated=tally.counts[key]) for key, m in tally.found.items()]), tally.uncounted


@dataclass(frozen=True, slots=True)
class _RawSeam:
    """A Seam in characters of the whole text, which the pieces have in common."""

    consumed: tuple[int, ...] = ()
    bare_end: int = 0

    def after(self, start: int) -> _RawSeam:
        """The seam counted from `start`; what lies far before it is all the same."""
        return _RawSeam(tuple(max(-1, c - start) for c in self.consumed), max(-1, self.bare_end - start))


@dataclass(slots=True)
class _Tally:
    """The different messages seen so far, by what makes them the same, and how often each was seen."""

    source: str
    found: dict[object, Message] = field(default_factory=dict)
    counts: Counter[object] = field(default_factory=Counter)
    uncounted: int = 0
    known: dict[object, tuple[Counter[object], _RawSeam]] = field(default_factory=dict)

    def read(self, passage: Passage, seam: _RawSeam) -> _RawSeam:
        """Take over the messages of the passage; returns the seam to the next.

        A program in a crash loop prints the same for hours: a passage that is the same in text and seam is only
        counted.
        """
        start = passage.start
        key = (passage.text, passage.low, passage.high, seam.after(start) if passage.is_continued else None)
        if key in self.known:
            seen, following = self.known[key]
            for one, number in seen.items():
                if one in self.found:
                    self.counts[one] += number
                else:
                    self.uncounted += number
            return following.after(-start)
        seen, following = self._new(passage, seam)
        if len(self.known) < MOST_KNOWN:
            self.known[key] = (seen, following.after(start))
        return following

    def _new(self, passage: Passage, seam: _RawSeam) -> tuple[Counter[object], _RawSeam]:
        body, start = clean(passage.text), passage.start
        inner = Seam()
        if passage.is_continued:
            consumed = tuple(body.at(max(0, c - start)) if c >= start else -1 for c in seam.consumed)
            inner = Seam(consumed, body.at(passage.low), body.at(seam.bare_end - start))
        high = body.at(passage.high) if passage.high < len(passage.text) else len(body.text) + 1
        groups, following = read_piece(body.text, inner, high, body.at(max(0, passage.high - RECALL_CHARS)))
        seen: Counter[object] = Counter()
        for group in groups:
            key = (group.family.program, group.kind, *((name, f.value) for name, f in group.figures.items()))
            seen[key] += 1
            if key not in self.found and len(self.found) < MOST_MESSAGES:
                message = _message(group, body, passage.text)
                line = passage.line + passage.text.count("\n", 0, message.offset)
                self.found[key] = replace(message, source=self.source, line=line, offset=start + message.offset)
            if key in self.found:
                self.counts[key] += 1
            else:
                self.uncounted += 1
        consumed = tuple(start + body.origin(c) if c >= 0 else -1 for c in following.consumed)
        return seen, _RawSeam(consumed, start + body.origin(max(0, following.bare_end)))


def _pools_merged(messages: list[Message]) -> list[Message]:
    """The messages with a pool's own line joined to the error that follows it, when both are of the same request."""
    errors = {m.bytes_of("tried_bytes"): m for m in messages if m.kind == "tf_tensor" or m.kind.startswith("jax_")}
    merged: dict[int, Message] = {}
    kept = []
    for message in messages:
        tried = message.bytes_of("tried_bytes")
        error = errors.get(tried) if message.kind in ("bfc", "bfc_exact") and tried is not None else None
        if error is None:
            kept.append(message)
        else:
            merged[id(error)] = replace(error, figures={**message.figures, **error.figures})
    return [merged.get(id(message), message) for message in kept]
