"""A start-up log of vLLM (0.4 to 0.33): its flags, memory lines and errors, by rank.

What is kept is bounded by the number of figures and ranks, whatever the lines hold. Colours and prefixes are seen
through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.contract.start_log import LoggedError, MeasuredStart
from planner.engines.vllm.log.flags import flags_in, has_flags, words_of
from planner.engines.vllm.log.lines import LinePattern, line_patterns
from planner.engines.vllm.log.release import release_in
from planner.units import GIB

_MOST_RANKS: Final = 256
_MOST_ERRORS: Final = 50
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\[(?:\d{1,2};)?\d{1,2}m")
_RANK: Final = re.compile(r"\(([A-Za-z][\w ]{0,40}?(?:[ =_]?\w{1,24})?(?: rank=\d+)?)(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s")
_RANK_NUMBER: Final = re.compile(r"(?:TP|PP|DP|EP|rank=)\d+")
# The smallest rank decides what the pool holds; of everything else the fullest rank is reported.
_SMALLEST_COUNTS: Final = (
    "kv_cache_gib",
    "kv_cache_bytes",
    "num_gpu_blocks",
    "kv_tokens",
    "max_concurrency",
    "free_memory_gib",
)
# Inputs that memory lines print
_PRINTED_INPUTS: Final = ("gpu_memory_gib", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens")


@dataclass(slots=True)
class _Seen:
    """What was seen so far; flags under the names of a measured case, those of its `other_flags` with a leading dot."""

    flags: dict[str, object] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    errors: list[LoggedError] = field(default_factory=list)


def read_log(lines: Iterable[str]) -> MeasuredStart:
    """What the lines say; one number for all ranks: the smallest of what limits the pool, else the largest."""
    seen, recognised = _Seen(), 0
    for number, raw in enumerate(lines, start=1):
        line = _ANSI.sub("", raw) if "\x1b" in raw or "m" in raw[:12] else raw
        if has_flags(line):
            for name, value in flags_in(line).items():
                seen.flags.setdefault(name, value)
        for pattern in line_patterns():
            if pattern.needle not in line:
                continue
            match = pattern.pattern.search(line)
            if match is not None:
                recognised += 1
                _note(seen, pattern, match, line, number)
    figures = {
        name: min(values.values()) if name in _SMALLEST_COUNTS else max(values.values())
        for name, values in seen.figures.items()
    }
    stated, other = _stated(seen, figures)
    return MeasuredStart(
        version=release_in(seen.words.get("version", "")),
        words=tuple(words_of({**stated, **other, **_as_started(seen)})),
        stated={**stated, "other_flags": other} if other else stated,
        measured=_measured(figures),
        by_rank=seen.figures,
        errors=tuple(seen.errors),
        recognised=recognised,
    )


def _stated(seen: _Seen, figures: Mapping[str, float]) -> tuple[dict[str, object], dict[str, object]]:
    """The command as far as it is known: the deployment of a measured case, and its `other_flags`."""
    stated = {name: value for name, value in seen.flags.items() if not name.startswith(".")}
    other = {name[1:]: value for name, value in seen.flags.items() if name.startswith(".")}
    for name in _PRINTED_INPUTS:
        if name in figures:
            stated.setdefault(name, int(figures[name]) if name.startswith("max_") else figures[name])
    if "version" in seen.words:
        stated["engine_version"] = seen.words["version"]
    if "v2_runner" in seen.words:
        other["V2_model_runner"] = True
    elif "v0" in seen.words:
        stated["engine_version"] = f"{stated.get('engine_version', '')} V0".strip()
        other["model_runner"] = "v0"
    return stated, other


def _as_started(seen: _Seen) -> dict[str, object]:
    """A length that the engine did not refuse was allowed."""
    return {"allow_long_max_model_len": True} if all(e.kind != "length_of_config" for e in seen.errors) else {}


def _measured(figures: Mapping[str, float]) -> dict[str, float]:
    found = dict(figures)
    if "kv_cache_bytes" in found:
        found["kv_cache_gib"] = found["kv_cache_bytes"] / GIB
    if "activation_peak_gib" not in found and "weights_gib" in found and "peak_torch_gib" in found:
        found["activation_peak_gib"] = round(found["peak_torch_gib"] - found["weights_gib"], 4)
    return found


def _note(seen: _Seen, pattern: LinePattern, match: re.Match[str], line: str, number: int) -> None:
    if pattern.error and len(seen.errors) < _MOST_ERRORS:
        seen.errors.append(LoggedError(pattern.kind, match.group(0)[:400], number))
    if pattern.kind == "terms" and "PyTorch activation peak" in line:
        seen.words["v0"] = "terms"
    if "# GPU blocks" in line or "# cuda blocks" in line or "# CUDA blocks" in line:
        seen.words["v0"] = "blocks"
    rank = _rank_of(line)
    for name, text in match.groupdict().items():
        if text is None:
            continue
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            seen.words.setdefault(name, text)
            continue
        by_rank = seen.figures.setdefault(name, {})
        if rank in by_rank or len(by_rank) < _MOST_RANKS:
            by_rank[rank] = value


def _rank_of(line: str) -> str:
    """The worker's name in its prefix: "Worker_TP0", "VllmWorker rank=1"; "" for the engine itself."""
    match = _RANK.search(line[:160])
    if match is None or "worker" not in match.group(1).lower():
        return ""
    return match.group(1) if _RANK_NUMBER.search(match.group(1)) else match.group(0).strip("() \t")
