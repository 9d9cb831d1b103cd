"""What the lines around a message say: the program, the phase, the place, the settings, the versions, the time."""

from __future__ import annotations

import re

from planner.diagnosis.messages.phases import phase_of
from planner.diagnosis.messages.places import place_of
from planner.diagnosis.messages.programs import TRADES, program_of, trade_of
from planner.diagnosis.messages.traceback import Frame, all_frames, frames_around

BEFORE_CHARS = 9_000
AFTER_CHARS = 6_000
_NEAR_CHARS = 3_000

_TIME = re.compile(
    r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d|"
    r"[EWI]\d{4} \d\d:\d\d:\d\d)"
)
_RANK = re.compile(r"\brank[ =:]?(\d{1,5})\b|\[rank(\d{1,5})\]|\b[TD]P(\d{1,4})\]", re.IGNORECASE)
_PID = re.compile(r"\([^()\n]{0,60}\bpid=(\d{1,10})[^()\n]{0,60}\)")
_ALLOC_CONF = re.compile(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF[\"']?\]? ?[=:,] ?[\"']?([a-z][\w:.,>\[\]-]{1,200})")
# Words that make a setting an advice: torch prints one with every error, people and pages repeat it.
_ADVICE = re.compile(
    r"(?:\btry(?:ing)?(?: to)? set(?:ting)?|\bconsider(?: setting)?|\b(?:should|could|can|may|might|please|to)(?: "
    r"also)? set"
    r"|\brecommend\w*(?: setting)?|\bsuggest\w*(?: setting)?|\bsetting|\bavoid fragmentation[^\n]{0,20}|\buse)"
    r"[\s`'\"*:]{0,6}$",
    re.IGNORECASE,
)
_ADVICE_AFTER = re.compile(r"^[`'\"\s]{0,4}to (?:avoid|reduce) fragmentation", re.IGNORECASE)
_TRIED = re.compile(
    r"\b(?:I|we|already|have|with|after|ran) (?:\w+ )?(?:tried |using |have )?set(?:ting)?[\s`'\"]{0,4}$", re.I
)
_TORCH_VERSION = re.compile(r"\btorch(?:==| version:? | )(\d\.\d{1,2}(?:\.\d{1,2})?)\b", re.IGNORECASE)
_FRACTION = re.compile(
    r"total_gpu_memory \((\d{1,6}(?:\.\d{1,6})?) ?GiB\) x gpu_memory_utilization \((\d(?:\.\d{1,6})?)\)"
)
_SAID = (
    ("gpu_blocks", re.compile(r"# (?:GPU|cuda) blocks: (\d{1,10})")),
    ("tensor_parallel_size", re.compile(r"tensor[_-]parallel[_-]size['\"]?[=: ] ?(\d{1,4})")),
    ("model_loading_gib", re.compile(r"Model loading took (\d{1,6}(?:\.\d{1,6})?) Gi?B", re.IGNORECASE)),
    ("kv_cache_memory_gib", re.compile(r"Available KV cache memory: (-?\d{1,6}(?:\.\d{1,6})?) GiB")),
    (
        "batch_size",
        re.compile(
            r"(?:per_device_train_batch_size|micro_batch_size|train_batch_size)['\"]?\s?[=: ] "
            r"?(\d{1,5})\b"
        ),
    ),
    ("max_num_seqs", re.compile(r"max[_-]num[_-]seqs['\"]?[=: ] ?(\d{1,6})\b")),
    ("max_num_batched_tokens", re.compile(r"max[_-]num[_-]batched[_-]tokens['\"]?[=: ] ?(\d{1,8})\b")),
    ("mem_fraction_static", re.compile(r"mem[_-]fraction[_-]static['\"]?[=: ] ?(0?\.\d{1,6})\b")),
    ("visible_devices", re.compile(r"(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES[\"']?\]? ?= ?[\"']?([\d,]{1,64})")),
)
_GRAPHS_OFF = re.compile(r"--enforce-eager\b|enforce_eager['\"]?[=:] ?True|--disable-cuda-graph\b")
_CHECKPOINTING = re.compile(
    r"torch/utils/checkpoint\.py|gradient_checkpointing['\"]?\s?[:= ] ?(?:[Tt]rue|unsloth|['\"]unsloth)"
    r"|--gradient[_-]checkpointing\b(?! ?[Ff]alse)|enable_activation_checkpointing[=:] ?True"
)
_UTILIZATION = re.compile(r"gpu[_-]memory[_-]utilization['\"]?[=: ] ?(0?\.\d{1,6}|1\.0|1)\b")


def context_of(text: str, raw: str, start: int, end: int, family: str) -> dict[str, str]:
    """Name to value of what is recognised in the text around a message; nothing is guessed.

    Args:
        text: the passage with line prefixes blanked; the message stands from `start` to `end`.
        raw: the passage as it is, as long: a program is also known by the form of its log lines.
        family: the program whose wording the message is.
    """
    low, high = max(0, start - BEFORE_CHARS), end + AFTER_CHARS
    before, around = text[low:start], text[low:high]
    found: dict[str, str] = {}
    frames = frames_around(around, start - low, end - low)
    _program(found, frames, around, before, raw[low:high], family)
    times = [m.group(1) for m in _TIME.finditer(text[max(0, start - _NEAR_CHARS) : end + 1])]
    if times:
        found["time"] = times[-1].split(" ", 1)[1] if times[-1][0].isalpha() and times[-1][1].isalpha() else times[-1]
    settings = _allocator_setting(around)
    if settings:
        found["alloc_conf"] = settings
    version = _TORCH_VERSION.search(around)
    if version:
        found["torch"] = version.group(1)
    fraction = _FRACTION.search(around)
    if fraction:
        found["total_gpu_memory_gib"], found["gpu_memory_utilization"] = fraction.groups()
    for name, pattern in _SAID:
        match = pattern.search(around)
        if match:
            found[name] = match.group(1)
    if _CHECKPOINTING.search(around):
        found["checkpointing"] = "on"
    if _GRAPHS_OFF.search(around):
        found["graphs"] = "off"
    asked = _UTILIZATION.search(around)
    if asked:
        found.setdefault("gpu_memory_utilization", asked.group(1))
    place = place_of(raw[max(0, start - _NEAR_CHARS) : end + _NEAR_CHARS])
    if place:
        found["place"] = place
    if place in ("windows", "wsl"):
        found["platform"] = place
    return found


def pid_of(raw: str, at: int) -> str | None:
    """The PID that the line at `at` names in its prefix: that of the process which prints."""
    match = _PID.search(raw[max(raw.rfind("\n", 0, at), at - 400, 0) : at])
    return match.group(1) if match else None


def rank_of(raw: str, at: int) -> str | None:
    """The rank that the line at `at` names in its prefix."""
    rank = _RANK.search(raw[max(raw.rfind("\n", 0, at), at - 400, 0) : at + 40])
    return next(g for g in rank.groups() if g is not None) if rank else None


def _program(found: dict[str, str], frames: list[Frame], around: str, before: str, raw: str, family: str) -> None:
    """Adds engine, phase, operation and trade."""
    own = frames or all_frames(around)
    program, driven = program_of(own, raw)
    serving = TRADES.get(program) == "serve" or TRADES.get(family) == "serve"
    phase, operation = phase_of(frames, f"{before[-_NEAR_CHARS:]}", serving=serving)
    trade = trade_of(program or family, phase, own, around)
    if phase == "warm_up" and not serving and trade != "serve":
        phase = "forward"
    named = {"engine": program, "phase": phase, "operation": operation, "trade": trade, "driven": driven}
    for name, value in named.items():
        if value:
            found[name] = value


def _allocator_setting(text: str) -> str:
    """The allocator's settings in force; a setting that is only advised is none."""
    for match in _ALLOC_CONF.finditer(text):
        lead = text[max(0, match.start() - 60) : match.start()]
        advised = _ADVICE.search(lead) and not _TRIED.search(lead)
        if not advised and not _ADVICE_AFTER.match(text[match.end() : match.end() + 40]):
            return match.group(1)
    return ""
