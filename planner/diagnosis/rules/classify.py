"""A message to a verdict: which rules apply to it, and which of its figures are impossible or contradict each other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from planner.diagnosis.messages.wordings import Pattern, families
from planner.diagnosis.result import Message, Verdict
from planner.diagnosis.rules import engines, pools, programs, torch
from planner.diagnosis.rules.contradictions import contradictions
from planner.diagnosis.rules.limits import impossible_size
from planner.diagnosis.rules.request_alone import by_request_alone
from planner.diagnosis.rules.torch_figures import torch_figures

_HANDLERS = {**engines.HANDLERS, **pools.HANDLERS, **programs.HANDLERS}
# Kinds of the caching allocators' messages, which the torch rules read.
_TORCH_KINDS = ("torch_", "xpu_", "async_")


@cache
def _patterns() -> dict[str, Pattern]:
    return {p.kind: p for family in families() for p in family.patterns}


def classify(message: Message) -> Verdict:
    """The verdict on a message, with what is odd about its figures."""
    verdict = _verdict(message)
    more = (*_said_around(message), *contradictions(message))
    return replace(verdict, evidence=(*verdict.evidence, *more)) if more else verdict


_AROUND = {
    "model_loading_gib": "the log says that loading the model took {} GiB",
    "kv_cache_memory_gib": "the log says that {} GiB were available for the KV cache",
    "gpu_blocks": "the log counts {} GPU blocks for the KV cache",
    "gpu_memory_utilization": "the log names a gpu_memory_utilization of {}",
}


def _said_around(message: Message) -> tuple[str, ...]:
    """What an engine's lines around its message say of its budget."""
    if message.program != "vllm" and message.context.get("engine") != "vllm":
        return ()
    return tuple(text.format(message.context[name]) for name, text in _AROUND.items() if name in message.context)


def _verdict(message: Message) -> Verdict:
    pattern = _patterns().get(message.kind)
    handler = _HANDLERS.get(message.kind)
    bug = impossible_size(message.bytes_of("tried_bytes"))
    if bug is not None:
        return bug
    if handler is not None:
        return handler(message)
    if pattern is not None and pattern.failure is not None:
        return _stated(pattern)
    if message.kind.startswith(_TORCH_KINDS):
        return torch.decide(message, torch_figures(message))
    return by_request_alone(
        message.bytes_of("tried_bytes"), capacity=message.capacity, why="the message has no capacity"
    )


def _stated(pattern: Pattern) -> Verdict:
    """The verdict that a wording carries by itself."""
    assert pattern.failure is not None
    return Verdict(
        failure=pattern.failure,
        second=pattern.second,
        confidence=pattern.confidence,
        rule="the wording itself: " + (pattern.why or "what the program says"),
        evidence=(pattern.why,) if pattern.why else (),
        would_change=(pattern.would_change,) if pattern.would_change else (),
        advise=pattern.advise,
        caution=pattern.caution,
    )
