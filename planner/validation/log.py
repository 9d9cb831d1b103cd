"""A start-up log of vLLM (0.4 to 0.33) or SGLang: its flags, memory lines and errors, by rank.

The file is read line by line with a bound on the line, and what is kept is bounded by the number of figures and ranks,
whatever the file holds. Colours, worker prefixes, carriage returns and UTF-16 are seen through.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from planner.errors import NotRecognised, SourceError
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.log_flags import flags_in, has_flags
from planner.validation.log_lines import LinePattern, line_patterns

_CHUNK_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 16
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


@dataclass(frozen=True, slots=True)
class LoggedError:
    """A refusal or failure: its kind, the line's text (cut), and its number."""

    kind: str
    text: str
    line: int


@dataclass(slots=True, kw_only=True)
class StartLog:
    """What a start-up log says.

    Args:
        engine: "vllm" or "sglang".
        flags: inputs, under the names of a measured case; those of its `other_flags` with a leading dot.
        figures: name -> rank -> the last figure that this rank printed ("" without a prefix).
        words: name -> what is no number (the version).
        errors: refusals and failures, in order.
        lines: how many lines were read.
    """

    engine: str = "vllm"
    flags: dict[str, object] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    errors: list[LoggedError] = field(default_factory=list)
    lines: int = 0

    @property
    def ranks(self) -> int:
        """Ranks that printed anything."""
        return len({rank for by_rank in self.figures.values() for rank in by_rank if rank}) or 1

    def figure(self, name: str) -> float | None:
        """One number for all ranks: the smallest of what limits the pool, the largest of everything else."""
        values = self.figures.get(name)
        if not values:
            return None
        return min(values.values()) if name in _SMALLEST_COUNTS else max(values.values())

    def as_case(self, name: str, config: str, *, gpu: str | None = None, gpu_memory_gib: float | None = None) -> Case:
        """The start as a measured case, to be planned and compared.

        Args:
            name: its id.
            config: the model that describes it.
            gpu, gpu_memory_gib: the card, where the log does not say.
        """
        measured = {key: value for key in _MEASURED if (value := self.figure(key)) is not None}
        exact = self.figure("kv_cache_bytes")
        if exact is not None:
            measured["kv_cache_gib"] = exact / GIB
        if "activation_peak_gib" not in measured and "weights_gib" in measured:
            peak = self.figure("peak_torch_gib")
            if peak is not None:
                measured["activation_peak_gib"] = round(peak - measured["weights_gib"], 4)
        deployment = {key: value for key, value in self.flags.items() if not key.startswith(".") and key != "model"}
        other = {key[1:]: value for key, value in self.flags.items() if key.startswith(".")}
        for key in ("gpu_memory_gib", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens"):
            value = self.figure(key)
            if value is not None:
                deployment.setdefault(key, int(value) if key.startswith("max_") else value)
        if gpu_memory_gib is not None:
            deployment["gpu_memory_gib"] = gpu_memory_gib
        if gpu is not None:
            deployment["gpu"] = gpu
        if "version" in self.words:
            deployment["engine_version"] = self.words["version"]
        if "v2_runner" in self.words:
            other["V2_model_runner"] = True
        elif "v0" in self.words:
            deployment["engine_version"] = f"{deployment.get('engine_version', '')} V0".strip()
        deployment["engine"] = self.engine
        deployment["other_flags"] = other
        model = str(self.flags.get("model", config))
        return Case(
            id=name,
            source="start-up log",
            model=model,
            config=config,
            quality="A",
            deployment=deployment,
            measured=measured,
        )


_MEASURED: Final = (
    "weights_gib",
    "activation_peak_gib",
    "non_torch_gib",
    "cuda_graph_gib",
    "cuda_graph_estimated_gib",
    "kv_cache_gib",
    "num_gpu_blocks",
    "kv_tokens",
    "max_concurrency",
    "max_concurrency_len",
    "needed_kv_gib_for_one_request",
    "estimated_max_len",
    "free_memory_gib",
)


def read_log(path: Path) -> StartLog:
    """The log in a file.

    Raises:
        SourceError: the file cannot be read.
        NotRecognised: no line of either engine in it.
    """
    try:
        with path.open("rb") as file:
            start = file.read(2)
            file.seek(0)
            encoding = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}.get(start, "utf-8")
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            return parse_log(_lines(decoder.decode(chunk) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b"")))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from None


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    """Lines of at most _LONGEST_LINE characters; what a longer one has beyond that is dropped."""
    held, dropping = "", False
    for chunk in chunks:
        pieces = re.split(r"\r\n|\n|\r", chunk)
        for piece in pieces[:-1]:
            if not dropping:
                yield (held + piece)[:_LONGEST_LINE]
            held, dropping = "", False
        if not dropping:
            held += pieces[-1]
            if len(held) > _LONGEST_LINE:
                yield held[:_LONGEST_LINE]
                held, dropping = "", True
    if held and not dropping:
        yield held


def parse_log(lines: Iterable[str]) -> StartLog:
    """The log in these lines.

    Raises:
        NotRecognised: no line of either engine in them.
    """
    log, seen = StartLog(), {"vllm": 0, "sglang": 0}
    for number, raw in enumerate(lines, start=1):
        log.lines = number
        line = _ANSI.sub("", raw) if "\x1b" in raw or "m" in raw[:12] else raw
        if has_flags(line):
            for name, value in flags_in(line).items():
                log.flags.setdefault(name, value)
        for pattern in line_patterns():
            if pattern.needle not in line:
                continue
            match = pattern.pattern.search(line)
            if match is not None:
                seen[pattern.engine] += 1
                _note(log, pattern, match, line, number)
    if not any(seen.values()):
        raise NotRecognised("no start-up line of vLLM or SGLang in this text; pass the engine's whole log")
    log.engine = max(seen, key=lambda engine: seen[engine])
    return log


def _note(log: StartLog, pattern: LinePattern, match: re.Match[str], line: str, number: int) -> None:
    if pattern.error and len(log.errors) < _MOST_ERRORS:
        log.errors.append(LoggedError(pattern.kind, match.group(0)[:400], number))
    if pattern.kind == "terms" and "PyTorch activation peak" in line:
        log.words["v0"] = "terms"
    if "# GPU blocks" in line or "# cuda blocks" in line or "# CUDA blocks" in line:
        log.words["v0"] = "blocks"
    rank = _rank_of(line)
    for name, text in match.groupdict().items():
        if text is None:
            continue
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            log.words.setdefault(name, text)
            continue
        by_rank = log.figures.setdefault(name, {})
        if rank in by_rank or len(by_rank) < _MOST_RANKS:
            by_rank[rank] = value


def _rank_of(line: str) -> str:
    """The worker's name in its prefix: "Worker_TP0", "VllmWorker rank=1"; "" for the engine itself."""
    match = _RANK.search(line[:160])
    if match is None or "worker" not in match.group(1).lower():
        return ""
    return match.group(1) if _RANK_NUMBER.search(match.group(1)) else match.group(0).strip("() \t")
