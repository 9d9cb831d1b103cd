"""Which actions a verdict asks for, most useful first. Nothing here is run: commands only look.

The order is data (`choice` in actions.json): every entry whose conditions hold adds its actions; "*" stands for those
that the rule or the wording itself names. What belongs to another trade, or cannot work here, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.diagnosis.remedies.catalogue import action, belongs, catalogue
from planner.diagnosis.remedies.situation import Situation
from planner.diagnosis.result import Action, Message, Ownership, Verdict
from planner.diagnosis.rules.thresholds import ROUNDED_REQUESTS

_MOST_ACTIONS = 8
_SMALL_BYTES = 64 << 20


def actions(message: Message, verdict: Verdict, ownership: Ownership | None = None) -> tuple[Action, ...]:
    """The actions for a verdict, the most useful first."""
    situation = Situation(message=message, verdict=verdict, ownership=ownership or Ownership())
    words, keys = situation.words(), situation.keys
    found = []
    for name in dict.fromkeys(_names(situation)):
        if belongs(name, situation.trade) and situation.applies(name):
            made = action(name, words, keys)
            if made is not None:
                found.append(_without_pasted(made) if situation.has_processes else made)
    return tuple(found[:_MOST_ACTIONS])


def _without_pasted(one: Action) -> Action:
    """The action without a command that shows what was given already."""
    return replace(one, command=None) if one.command and "nvidia-smi" in one.command else one


def _names(situation: Situation) -> Iterator[str]:
    facts = situation.facts()
    for entry in catalogue()["choice"]:
        if all(facts[name] & set(values) for name, values in entry["when"].items()):
            for name in entry["do"]:
                yield from situation.verdict.advise if name == "*" else (name,)


def cautions(message: Message, verdict: Verdict) -> tuple[str, ...]:
    """The cautions that belong to the class and to what the message prints."""
    book = catalogue()
    names = [*verdict.caution, *book["class_cautions"][verdict.failure]]
    tried = message.bytes_of("tried_bytes")
    if message.kinds & {"torch_unallocated", "torch_reserved_old", "torch_cached"}:
        names.append("slack")
    if "torch_advice" in message.kinds:
        names.append("advice_line")
    if verdict.failure == "device_full" and (tried in ROUNDED_REQUESTS or (tried or 1 << 62) < _SMALL_BYTES):
        names.append("victim")
    if "other_process" in (verdict.failure, verdict.second):
        names += ["do_not_kill", "ordinal"]
    if message.kinds & {"exit_137", "exit_minus_9", "sigkill", "signal_9", "systemd_killed", "killed_shell"}:
        names.append("sigkill")
    if message.kind == "sglang_static":
        names.append("increase_then_oom")
    if message.program.startswith("pytorch") and message.bytes_of("total_bytes") is not None:
        names.append("moments")
    if verdict.second == "fragmentation_clue":
        names.append("expandable")
    if message.program in ("memory summary", "memory snapshot"):
        names.append("after_exception")
    estimated = "fitting_max_model_len" in verdict.derived and message.kind.startswith("vllm_kv_bytes")
    linear = estimated and "estimated_max_len" not in message.figures
    allowed = (n for n in names if n != "linear" or linear)
    return tuple(book["cautions"][name] for name in dict.fromkeys(_fitting(message, allowed)))


def _fitting(message: Message, names: Iterable[str]) -> Iterable[str]:
    """Cautions about torch's allocator only for messages of it."""
    torch = message.program.startswith(("pytorch", "memory "))
    native = torch and message.program not in ("pytorch-mps", "pytorch-xpu")
    for name in names:
        if name in ("slack", "empty_cache", "leak") and not torch:
            continue
        if name in ("expandable", "max_split") and not native:
            continue
        yield name
