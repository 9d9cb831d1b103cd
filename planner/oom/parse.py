"""Passages to messages: the drafts with their back end, version and context; repeated ones counted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from planner.oom.context import context_of
from planner.oom.drafts import Draft, drafts_in
from planner.oom.formats.base import figures_of
from planner.oom.result import Message
from planner.oom.scan import Passage
from planner.oom.sizes import Figure
from planner.oom.tensors import with_tensor_size
from planner.oom.text import Body, clean, excerpt
from planner.oom.versions import torch_version

# A hostile log can hold any number of different messages; so many are told apart, the others counted.
MOST_MESSAGES = 1_000
_TIGHT_SPACE = re.compile(r" (?:\?|\{\d+,\d+\})?")


def messages_in(raw: str) -> list[Message]:
    """All messages of one short text, in its order; `offset` counts characters of that text."""
    body = clean(raw)
    return [_message(draft, body, raw) for draft in drafts_in(body.text)]


def _message(draft: Draft, body: Body, raw: str) -> Message:
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


def _torch_details(message: Message, draft: Draft, body: str, backend: str) -> Message:
    """The message with its back end, the versions that print it, and figures that a line break cut within a word."""
    is_xpu = backend == "XPU" or "xpu_block_limit" in message.kinds
    program = "pytorch-xpu" if is_xpu else message.program
    context = {**message.context, **({"backend": backend} if backend else {})}
    if draft.wrapped_by:
        context["wrapped_by"] = draft.wrapped_by
    rest = body[draft.start : min(draft.end + 600, draft.limit)]
    figures = {**_tight_figures(draft, rest), **message.figures}
    hint = torch_version(body[max(0, draft.start - 40) : draft.start] + rest, program) or message.version_hint
    return replace(message, program=program, version_hint=hint, context=context, figures=figures)


def _tight_figures(draft: Draft, around: str) -> dict[str, Figure]:
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


def read_passages(passages: Iterable[Passage], source: str) -> tuple[list[Message], int]:
    """The different messages of a text's passages, and how many further ones were only counted.

    A message that occurs again (every rank and every re-raise prints it) is counted in `repeated`.
    """
    found: dict[object, Message] = {}
    counts: dict[object, int] = {}
    places: set[tuple[int, str]] = set()
    uncounted = 0
    for passage in passages:
        body = clean(passage.text)
        for draft in drafts_in(body.text):
            place = (passage.start + body.origin(draft.start), draft.kind)
            if place in places:
                continue
            places.add(place)
            key = (draft.family.program, draft.kind, *((name, f.value) for name, f in draft.figures.items()))
            if key in found:
                counts[key] += 1
            elif len(found) < MOST_MESSAGES:
                message = _message(draft, body, passage.text)
                line = passage.line + passage.text.count("\n", 0, message.offset)
                found[key] = replace(message, source=source, line=line, offset=place[0])
                counts[key] = 1
            else:
                uncounted += 1
    return _pools_merged([replace(m, repeated=counts[key]) for key, m in found.items()]), uncounted


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
