"""What decides between remedies: the program, its trade, the phase, the place, and the numbers that price them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.diagnosis.result import Message, Ownership, Process, Verdict
from planner.diagnosis.rules.engines import is_useful_length
from planner.diagnosis.rules.thresholds import SMALL_CARD_BYTES
from planner.diagnosis.rules.torch_figures import is_absurd, torch_figures
from planner.units import GIB, MIB, format_size

# A shortage of this part of the card is more than a smaller step usually frees.
_LARGE_SHORTAGE = 10
_MOST_FRACTION = 0.95
_STEP = 0.01
# Room for what is allocated besides the request that failed.
_MARGIN_BYTES = 256 * MIB
_NO_SEGMENTS = ("pytorch-mps", "pytorch-xpu")
_SPLIT_SINCE, _SEGMENTS_SINCE = (1, 10), (2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A message with its verdict, as the choice of remedies sees it."""

    message: Message
    verdict: Verdict
    ownership: Ownership

    @property
    def program(self) -> str:
        """The program that failed: that of the frames, else the one whose wording it is."""
        return self.message.context.get("engine") or self.message.program

    @property
    def trade(self) -> str:
        """serve, train, generate, infer, or "" when nothing says."""
        return self.message.context.get("trade", "")

    @property
    def keys(self) -> tuple[str, ...]:
        """Wordings and spellings to prefer, most specific first."""
        place = self.message.context.get("place", "")
        return (self.program, self.message.program, f"trade:{self.trade}", f"place:{place}")

    @property
    def has_processes(self) -> bool:
        """Whether the processes on the card were given with the message."""
        return bool(self.ownership.free_gpus) or any(p.name for p in self.ownership.holders)

    def facts(self) -> dict[str, frozenset[str]]:
        """What the conditions of the choice ask for, by name."""
        message, verdict, context = self.message, self.verdict, self.message.context
        torch = message.program.startswith("pytorch") and message.program not in _NO_SEGMENTS
        figures = torch_figures(message) if message.program.startswith("pytorch") else None
        missing = figures.missing if figures is not None else None
        total = message.capacity
        large = missing is not None and total is not None and missing * 100 >= total * _LARGE_SHORTAGE
        named = {
            "class": verdict.failure,
            "second": verdict.second or "none",
            "trade": self.trade or "unknown",
            "program": self.program,
            "phase": context.get("phase", "none"),
            "operation": context.get("operation", "none"),
            "place": context.get("place", "none"),
            "torch": "yes" if torch else "no",
            "shortage": "large" if large else "small",
            "holders": "yes" if self._big_holders() else "no",
            "outside": "yes" if self._outside_torch() else "no",
            "whole": "yes" if self._whole() else "no",
            "small_card": "yes" if total is not None and total <= SMALL_CARD_BYTES else "no",
            "checkpointing": context.get("checkpointing", "none"),
            "scope": _scope(message),
            "driven": "yes" if self.trade == "train" and context.get("driven") else "no",
        }
        return {**{name: frozenset((value,)) for name, value in named.items()}, "kind": message.kinds | {message.kind}}

    def applies(self, name: str) -> bool:
        """Whether an action can work here at all: the version, back end and settings allow it."""
        message, context = self.message, self.message.context
        torch = message.program.startswith(("pytorch", "memory "))
        if name == "expandable_segments":
            on = "expandable_segments:True" in context.get("alloc_conf", "")
            unfit = message.program in _NO_SEGMENTS or "torch_async" in message.kinds
            return (
                torch
                and not on
                and not unfit
                and context.get("platform") != "windows"
                and _has(message, _SEGMENTS_SINCE)
            )
        if name == "max_split":
            on = "max_split" in context.get("alloc_conf", "") or context.get("platform") == "windows"
            return torch and not on and _has(message, _SPLIT_SINCE) and not _has(message, _SEGMENTS_SINCE)
        if name == "upgrade_torch":
            return torch and not _has(message, _SEGMENTS_SINCE)
        if name in ("look_at_allocator", "look_at_snapshot", "restart_routine"):
            known = (
                name.startswith("look") and message.program == "memory snapshot" and "tried_bytes" in message.figures
            )
            return torch and not known
        if name == "look_at_card":
            return not self.ownership.holders and not self.ownership.free_gpus
        if name in ("fewer_graphs",) and context.get("graphs") == "off":
            return False
        if name == "raise_utilization":
            return self._fraction_up() is not None
        if name == "lower_max_model_len":
            asked = message.bytes_of("max_model_len")
            return is_useful_length(self.verdict.derived.get("fitting_max_model_len", 0), asked)
        if name in ("release_live", "release_live_train"):
            return message.program.startswith("pytorch")
        return True

    def words(self) -> dict[str, str]:
        """Values for the places in the texts; a text that needs another is left out."""
        message, derived, own = self.message, self.verdict.derived, self.ownership
        figures = torch_figures(message) if message.program.startswith("pytorch") else None
        found = {"alloc_conf": alloc_conf_name(message), **_counts(message), **self._fractions()}
        for name in ("fitting_max_model_len", "fitting_gpu_memory_utilization"):
            if name in derived:
                found[name] = str(derived[name])
        asked = message.bytes_of("max_model_len")
        length = derived.get("fitting_max_model_len")
        found["length_words"] = f": {length:,} of {asked:,} tokens" if asked and length else ""
        if figures is not None and figures.slack is not None:
            found["slack"] = format_size(figures.slack)
        if figures is not None and figures.missing and figures.total and not is_absurd(figures.tried):
            found["short"] = format_size(figures.missing)
            found["needed_card"] = format_size(figures.total + figures.missing)
        elif message.capacity and message.bytes_of("tried_bytes") and not is_absurd(message.bytes_of("tried_bytes")):
            tried = message.bytes_of("tried_bytes") or 0
            found["short"], found["needed_card"] = format_size(tried), format_size(message.capacity + tried)
        whole = self._whole()
        if whole:
            found["whole"] = format_size(whole)
        limit = message.bytes_of("limit_bytes") or message.bytes_of("allowed_bytes")
        found["limit_words"] = f" ({format_size(limit)})" if limit else _known_limit(message)
        holders = self._big_holders()
        if holders:
            listed = ", ".join(p.words() for p in holders[:3])
            found["holders"] = f"{listed} on the card" if len(holders) < 4 else f"{listed} and {len(holders) - 3} more"
        if own.free_gpus:
            index, used, total = own.free_gpus[0]
            found["free_gpu"] = str(index)
            found["free_gpu_words"] = f"{format_size(used)} of {format_size(total)} in use on it"
        if self._outside_torch():
            found["holder_pid"] = str(own.holders[0].pid)
        if message.context.get("oom_memcg"):
            found["group"] = message.context["oom_memcg"].replace("\\", "")[:48]
        elif _scope(message) == "group":
            found["group"] = "(container, job or unit)"
        return found

    def _whole(self) -> int | None:
        """What the program needs in all, where the text says it."""
        for name in ("xla_total_bytes", "needed_bytes"):
            size = self.message.bytes_of(name)
            if size and size > GIB:
                return size
        return None

    def _big_holders(self) -> tuple[Process, ...]:
        """Other processes that hold enough to matter, with a PID to name them."""
        if self.verdict.failure == "host_memory":
            return ()
        return tuple(p for p in self.ownership.holders if p.pid is not None and (p.size_bytes or GIB) >= GIB // 4)

    def _outside_torch(self) -> bool:
        """Torch holds next to nothing and one process the rest: perhaps this one's other libraries."""
        own = self.ownership
        return own.tensors is not None and own.tensors < GIB // 4 and len(own.holders) == 1

    def _fractions(self) -> dict[str, str]:
        """The engine's fraction: what it is, and where the figures say that it should be."""
        message = self.message
        figures = torch_figures(message) if message.program.startswith("pytorch") else None
        now, total = self._fraction(), message.capacity
        missing = figures.missing if figures is not None else None
        step = 0.05
        if missing is not None and total and missing < total:
            step = max(0.02, math.ceil((missing + _MARGIN_BYTES) / total * 100) / 100)
        found = {
            "lower_words": f" by {step:.2f} or more" if now is None else f": {now:g} to {max(now - step, 0.1):.2f}"
        }
        found["lower_fraction"] = f"{max((now if now is not None else self._default()) - step, 0.1):.2f}"
        found["room"] = format_size((missing or GIB // 2) + _MARGIN_BYTES)
        up = self._fraction_up()
        if up is not None:
            found["raise_fraction"] = f"{up:g}"
            found["raise_words"] = "" if now is None else f": {now:g} to {up:g}"
        return found

    def _fraction(self) -> float | None:
        message, context = self.message, self.message.context
        said = message.number("fraction")
        for name in ("gpu_memory_utilization", "mem_fraction_static"):
            said = said if said is not None or name not in context else float(context[name])
        return said if said is not None and 0 < said <= 1 else None

    def _default(self) -> float:
        return {"sglang": 0.88, "tgi": 1.0, "tensorrt-llm": 0.9}.get(self.program, 0.9)

    def _fraction_up(self) -> float | None:
        """A larger fraction, to where the missing cache fits; None where there is no room for one."""
        now, derived = self._fraction(), self.verdict.derived
        if "fitting_gpu_memory_utilization" in derived and self.message.kind.startswith("vllm_kv"):
            return float(derived["fitting_gpu_memory_utilization"])
        start = now if now is not None else self._default()
        missing, total = derived.get("missing_kv_bytes"), self.message.capacity
        if missing and total:
            up = math.ceil((start + missing / total) * 100) / 100
            return up if up <= _MOST_FRACTION + 0.03 else None
        return _MOST_FRACTION if start < _MOST_FRACTION - _STEP else None


def _counts(message: Message) -> dict[str, str]:
    """Numbers of sequences, tokens and RAM to type, below what the text says was too much."""
    context = message.context
    seqs = message.bytes_of("dummy_requests") or int(context.get("max_num_seqs", 0)) or 256
    batch = int(context.get("batch_size", 0))
    prefill = message.bytes_of("prefill_tokens") or 4_096
    resident = message.bytes_of("host_resident_bytes") or message.bytes_of("host_used_bytes") or 0
    limit = message.bytes_of("host_limit_bytes") or 0
    gib = max(16, 2 ** math.ceil(math.log2(max(resident, limit, 1) * 5 / 4 / GIB + 1e-9))) if resident or limit else 0
    place = context.get("place", "")
    unit = {"kubernetes": "Gi", "docker": "g", "wsl": "GB"}.get(place, "G")
    return {
        "seqs": str(max(1, seqs // 4)),
        "batch": str(max(1, batch // 2)) if batch else "1",
        "steps": "2" if batch > 1 else "8",
        "prefill": str(max(1, prefill // 2)),
        "prefill_less": str(max(1, prefill // 2 - 1)),
        "layers": "20",
        "ram": f"{gib or 64}{unit}",
    }


def _scope(message: Message) -> str:
    """Whether the kernel's killer acted for the whole machine or for a group."""
    constraint = message.context.get("oom_constraint", "")
    if constraint == "CONSTRAINT_MEMCG" or "oom_cgroup" in message.context:
        return "group"
    return "machine" if constraint == "CONSTRAINT_NONE" or "kernel_oom" in message.kinds else "none"


def _known_limit(message: Message) -> str:
    if message.program == "pytorch-xpu":
        return " (often 4 GiB, about 1 GiB under WSL)"
    return ""


def _has(message: Message, release: tuple[int, int]) -> bool:
    """Whether the torch that printed the message is of this release or later; the newest where nothing says."""
    version = message.context.get("torch", "")
    if version:
        major, minor = (int(part) for part in version.split(".")[:2])
        return (major, minor) >= release
    hint = message.version_hint or ""
    last = hint.rsplit(" to ", 1)[-1] if " to " in hint else hint.removeprefix("torch <= ") if "<=" in hint else ""
    parts = last.split(" ")[0].split(".")
    if len(parts) == 2 and all(part.isdigit() for part in parts) and not hint.startswith("torch >="):
        return (int(parts[0]), int(parts[1])) >= release
    return True


def alloc_conf_name(message: Message) -> str:
    """The environment variable of the allocator's settings for the version and back end of a message."""
    if message.context.get("backend") == "HIP":
        return "PYTORCH_HIP_ALLOC_CONF"
    version = message.context.get("torch", "")
    if version:
        major, minor = (int(part) for part in version.split(".")[:2])
        return "PYTORCH_ALLOC_CONF" if (major, minor) >= (2, 9) else "PYTORCH_CUDA_ALLOC_CONF"
    return (
        "PYTORCH_ALLOC_CONF" if (message.version_hint or "").startswith("torch >= 2.11") else "PYTORCH_CUDA_ALLOC_CONF"
    )
