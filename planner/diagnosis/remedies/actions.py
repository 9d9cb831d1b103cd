"""What to do about a verdict, in order, and what to be careful with. Nothing here is run: commands only look.

The texts are data (actions.json); this module decides which apply to a message, its back end, platform and phase.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from planner.diagnosis.result import Action, Message, Verdict
from planner.diagnosis.rules.thresholds import ROUNDED_REQUESTS

_MOST_ACTIONS = 8
_TRAINING_PHASES = ("loss", "backward", "optimizer")
_SERVING_PHASES = ("graph_capture", "kv_cache", "profile")
_SERVERS = ("vllm", "sglang", "tgi", "tensorrt-llm", "exllama")
# Back ends of torch without the native CUDA allocator's settings.
_NO_SEGMENTS = ("pytorch-mps", "pytorch-xpu")


@cache
def catalogue() -> Mapping[str, Any]:
    """The texts: actions, cautions, and which belong to which class and phase."""
    from importlib.resources import files  # a tenth of a second that a mere import need not take

    data: dict[str, Any] = json.loads(
        files("planner.diagnosis.remedies").joinpath("actions.json").read_text(encoding="utf-8")
    )
    return data


def actions(message: Message, verdict: Verdict) -> tuple[Action, ...]:
    """The actions for a verdict, most useful first: of the phase and rule, of the class, of the second reading."""
    book = catalogue()
    names: list[str] = []
    if verdict.failure in ("device_full", "single_huge"):
        names += book["phases"].get(message.context.get("phase", ""), ())
    names += verdict.advise
    names += book["classes"][verdict.failure]
    if verdict.second is not None:
        names += book["classes"][verdict.second][:2]
    chosen = dict.fromkeys(_applicable(message, name) for name in names)
    return tuple(_action(name, message, verdict) for name in chosen if name)[:_MOST_ACTIONS]


def cautions(message: Message, verdict: Verdict) -> tuple[str, ...]:
    """The cautions that belong to the class and to what the message prints."""
    book = catalogue()
    names = [*verdict.caution, *book["class_cautions"][verdict.failure]]
    tried = message.bytes_of("tried_bytes")
    if message.kinds & {"torch_unallocated", "torch_reserved_old", "torch_cached"}:
        names.append("slack")
    if "torch_advice" in message.kinds:
        names.append("advice_line")
    if verdict.failure == "device_full" and (tried in ROUNDED_REQUESTS or (tried or 1 << 62) < 64 << 20):
        names.append("victim")
    if "other_process" in (verdict.failure, verdict.second):
        names += ["do_not_kill", "ordinal"]
    if message.kinds & {"exit_137", "exit_minus_9", "sigkill"}:
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
    return tuple(book["cautions"][name] for name in dict.fromkeys(_caution_fits(message, allowed)))


def _caution_fits(message: Message, names: Iterable[str]) -> Iterable[str]:
    """Cautions about torch's allocator only for messages of it."""
    torch = message.program.startswith(("pytorch", "memory "))
    native = torch and message.program not in _NO_SEGMENTS
    for name in names:
        if name in ("slack", "empty_cache", "leak") and not torch:
            continue
        if name in ("expandable", "max_split") and not native:
            continue
        yield name


def _applicable(message: Message, name: str) -> str:
    """The name, another one that fits better, or "" when the action does not apply here."""
    context = message.context
    if name == "levers":
        if context.get("phase") in _TRAINING_PHASES:
            return "levers_train"
        serving = context.get("phase") in _SERVING_PHASES or message.program in _SERVERS
        if serving or context.get("engine") in _SERVERS:
            return "levers_serve"
        return "levers_train" if context.get("engine") == "deepspeed" else "levers_either"
    if name == "expandable_segments":
        on = "expandable_segments:True" in context.get("alloc_conf", "")
        unfit = (
            message.program in _NO_SEGMENTS or "torch_async" in message.kinds or context.get("platform") == "windows"
        )
        return "" if on or unfit or not message.program.startswith(("pytorch", "memory ")) else name
    if name == "upgrade_torch" and not message.program.startswith(("pytorch", "memory ")):
        return ""
    if name in ("look_at_allocator", "look_at_snapshot", "restart_routine"):
        known = name.startswith("look") and message.program == "memory snapshot" and "tried_bytes" in message.figures
        return "" if known or not message.program.startswith(("pytorch", "memory ")) else name
    if name == "unload_references" and not message.program.startswith("pytorch"):
        return ""
    return name


def alloc_conf_name(message: Message) -> str:
    """The environment variable of the allocator's settings for the version and back end of a message."""
    if message.context.get("backend") == "HIP":
        return "PYTORCH_HIP_ALLOC_CONF"
    hint = message.version_hint or ""
    version = message.context.get("torch", "")
    if version:
        major, minor = (int(part) for part in version.split(".")[:2])
        return "PYTORCH_ALLOC_CONF" if (major, minor) >= (2, 9) else "PYTORCH_CUDA_ALLOC_CONF"
    if hint.startswith("torch >= 2.11"):
        return "PYTORCH_ALLOC_CONF"
    return "PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF from torch 2.9)"


def _action(name: str, message: Message, verdict: Verdict) -> Action:
    entry = catalogue()["actions"][name]
    derived = {
        "fitting_max_model_len": verdict.derived.get("fitting_max_model_len", "LENGTH"),
        "fitting_gpu_memory_utilization": verdict.derived.get("fitting_gpu_memory_utilization", "FRACTION"),
        "alloc_conf": alloc_conf_name(message),
    }
    text = entry["do"]
    for key, value in derived.items():
        text = text.replace("{" + key + "}", str(value))
    return Action(do=text, why=entry["why"], command=entry.get("command"))
