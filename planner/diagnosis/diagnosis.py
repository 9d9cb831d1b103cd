"""The whole way: inputs to findings, failures first; figures of different inputs are compared by no sum, only noted."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from planner.diagnosis.case import STATES, one_case
from planner.diagnosis.messages.anchors import TABLE_NEEDLES
from planner.diagnosis.messages.assembly import read_passages
from planner.diagnosis.messages.likely_lines import likely_lines
from planner.diagnosis.messages.passages import KEPT_CHARS, Passage, decode, scan
from planner.diagnosis.result import Diagnosis, Finding, Message, Verdict
from planner.diagnosis.rules.classify import classify
from planner.diagnosis.rules.states.nvidia_smi import judge_smi
from planner.diagnosis.rules.states.snapshot import snapshot_findings
from planner.diagnosis.rules.states.summary import judge_summary
from planner.diagnosis.sources import STDIN, kind_of, opened, shown
from planner.diagnosis.states.memory_summary import gpu_processes, memory_stats, memory_summaries
from planner.diagnosis.states.nvidia_smi import nvidia_smi, without_header
from planner.diagnosis.states.snapshot_reader import MOST_JSON_BYTES, read_json, read_pickle
from planner.errors import NotRecognised, SourceError

_SMALL_TEXT_CHARS = 65_536

LOOKED_FOR = (
    "memory failures of PyTorch, serving engines, llama.cpp, Ollama, JAX, TensorFlow, ONNX Runtime, TensorRT, "
    "Paddle, MLX, "
    "CUDA/ROCm/Level Zero/Vulkan/Metal and their libraries, ended processes, schedulers and containers; nvidia-smi, "
    "memory_summary, memory snapshots"
)


@dataclass(slots=True)
class _Read:
    """What one input gave: findings not yet joined to a case, notes, and its lines that look most like a message."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    likely: list[str] = field(default_factory=list)


def diagnose(*sources: str | Path, capacity_bytes: int | None = None) -> Diagnosis:
    """The diagnosis of one or more inputs together: one case.

    Args:
        sources: a text (anything with a line break or a space that is no file), a path, or "-" for standard input.
        capacity_bytes: what the driver reports of the card, for texts that print no capacity.

    Raises:
        NotRecognised: no input holds anything that is looked for.
        SourceError: an input cannot be read, or is a damaged or hostile snapshot.
    """
    if not sources:
        raise SourceError("nothing to diagnose; give a text, a file or - for standard input")
    found: list[tuple[str, _Read]] = []
    for source in sources:
        name = "the text" if _is_text(source) else "standard input" if source == STDIN else shown(str(source))
        found.append((name, _read(source, capacity_bytes)))
    return _diagnosis(found)


def diagnose_text(text: str, *, name: str = "text", capacity_bytes: int | None = None) -> Diagnosis:
    """The diagnosis of one text.

    Raises:
        NotRecognised: the text holds nothing that is looked for.
        SourceError: the text is empty.
    """
    return _diagnosis([(name, _from_text(text, name, capacity_bytes))])


def _diagnosis(inputs: Sequence[tuple[str, _Read]]) -> Diagnosis:
    findings = [finding for _, read in inputs for finding in read.findings]
    notes = [note for _, read in inputs for note in read.notes]
    empty = [name for name, read in inputs if not read.findings]
    if not findings:
        likely = [line for _, read in inputs for line in read.likely][:3]
        lines = "; most like a message: " + " | ".join(likely) if likely else ""
        raise NotRecognised(f"{', '.join(empty[:5])}: nothing was recognised{lines}; looked for {LOOKED_FOR}")
    notes += [f"{name}: nothing was recognised" for name in empty]
    shown_findings, joined = one_case(findings)
    return Diagnosis(findings=tuple(shown_findings), notes=(*notes, *joined, *_across(findings)))


def _from_text(text: str, name: str, capacity: int | None = None) -> _Read:
    return _from_stream(io.BufferedReader(io.BytesIO(text.encode("utf-8", "replace"))), name, capacity)


def _read(source: str | Path, capacity: int | None) -> _Read:
    text = str(source)
    if _is_text(source):
        return _from_text(text, "text", capacity)
    with opened(text) as stream:
        read = _from_stream(stream, "standard input" if text == STDIN else shown(text), capacity)
        read.notes += [f"{shown(text)}: {why}" for why in getattr(stream, "stopped", ())]
        return read


def _is_text(source: str | Path) -> bool:
    """Whether a source is the text itself: a string with a space or a line break that is no file's name."""
    if not isinstance(source, str) or source == STDIN:
        return False
    return ("\n" in source or " " in source) and not _is_file(source)


def _is_file(text: str) -> bool:
    try:
        return len(text) < 4_096 and "\n" not in text and Path(text).exists()
    except (OSError, ValueError):
        return False


def _from_stream(stream: BinaryIO, name: str, capacity: int | None) -> _Read:
    kind = kind_of(stream, name)
    if kind == "pickle":
        return _from_snapshot(stream, name)
    if kind == "json":
        return _from_json(stream, name, capacity)
    return _from_chunks(decode(stream), name, capacity)


def _from_snapshot(stream: BinaryIO, name: str) -> _Read:
    stats = b"OrderedDict" in stream.peek(512)[:512]  # type: ignore[attr-defined]
    try:
        snapshot = read_pickle(stream)
    except SourceError as error:
        hint = "; a pickled memory_stats() is not read: save it with json.dump" if stats else ""
        raise SourceError(f"{name}: {error}{hint}") from None
    return _Read([_finding(m, v, tables) for m, v, tables in snapshot_findings(snapshot, source=name)])


def _from_json(stream: BinaryIO, name: str, capacity: int | None) -> _Read:
    """memory_stats, a snapshot saved as JSON, or a log whose lines are JSON objects."""
    head = stream.read(MOST_JSON_BYTES + 1)
    if len(head) <= MOST_JSON_BYTES:
        text = head.decode("utf-8", "replace")
        stats = memory_stats(text, source=name)
        if stats:
            return _Read([_finding(m, judge_summary(m)) for m in _on_card(stats, capacity)])
        if '"segments"' in text[:4_096] or '"total_size"' in text[:4_096]:
            snapshot = read_json(text)
            return _Read([_finding(m, v, t) for m, v, t in snapshot_findings(snapshot, source=name)])
    return _from_chunks(decode(_joined(head, stream)), name, capacity)


def _joined(head: bytes, rest: BinaryIO) -> BinaryIO:
    """The stream as it was before `head` was read from it."""

    class Joined(io.RawIOBase):
        def __init__(self) -> None:
            self.first = io.BytesIO(head)

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            return self.first.read(size) or rest.read(size)

    return Joined()  # type: ignore[return-value]


def _from_chunks(chunks: Iterable[str], name: str, capacity: int | None = None) -> _Read:
    result = scan(chunks)
    messages, uncounted = read_passages(result.passages, name)
    findings = [_finding(m, classify(m)) for m in _on_card(messages, capacity)]
    findings += [_finding(m, _judge_state(m)) for m in _on_card(_states(result.passages, name), capacity)]
    if not findings and len(result.passages) <= 1 and result.chars <= _SMALL_TEXT_CHARS:
        findings += [_finding(m, judge_smi(m)) for m in without_header(result.text, source=name)]
    notes = []
    if result.skipped:
        notes.append(
            f"{name}: {result.skipped} passages between the first and the last {KEPT_CHARS >> 20} MiB of messages that"
            " differ were not read: what is repeated there is not counted"
        )
    if uncounted:
        notes.append(f"{name}: {uncounted} further different messages are not listed")
    return _Read(findings, notes, [] if findings else likely_lines(result.tail))


def _on_card(messages: Iterable[Message], capacity: int | None) -> list[Message]:
    """The messages with the capacity that the user stated."""
    return [replace(m, stated_total_bytes=capacity) for m in messages] if capacity else list(messages)


def _states(passages: Sequence[Passage], name: str) -> list[Message]:
    """Summaries, process lists and nvidia-smi output; each is read once, though passages can overlap."""
    found: dict[tuple[object, ...], Message] = {}
    for passage in passages:
        low = passage.text.lower()
        if not any(needle in low for needle in TABLE_NEEDLES):
            continue
        for reader in (memory_summaries, gpu_processes, nvidia_smi):
            for message in reader(passage.text, source=name, line=passage.line, start=passage.start):
                key = (message.program, message.device, *((n, f.value) for n, f in message.figures.items()))
                found.setdefault(key, message)
    return list(found.values())


def _judge_state(message: Message) -> Verdict:
    return judge_summary(message) if message.program == "memory summary" else judge_smi(message)


def _finding(message: Message, verdict: Verdict, tables: dict[str, object] | None = None) -> Finding:
    return Finding(message=message, verdict=verdict, tables=tables or {})


def _across(findings: list[Finding]) -> list[str]:
    """Notes on inputs of different devices or moments; their figures are never summed."""
    errors = [f for f in findings if f.message.program not in STATES]
    states = [f for f in findings if f.message.program in STATES]
    notes = []
    devices = {f.message.device for f in errors if f.message.device is not None}
    others = {f.message.device for f in states if f.message.device is not None}
    if errors and states and devices:
        if others and not devices & others:
            notes.append(
                f"the messages are of device {_listed(devices)}, the states of device {_listed(others)}: "
                "they are not compared"
            )
        elif any(f.message.program == "nvidia-smi" for f in states):
            notes.append("GPU N of a message is the ordinal within CUDA_VISIBLE_DEVICES, not nvidia-smi's index")
    times = {f.message.context["time"] for f in errors if "time" in f.message.context}
    if len(times) > 1:
        notes.append(f"the messages are of {len(times)} different times")
    return notes


def _listed(devices: Iterable[int]) -> str:
    return ", ".join(str(d) for d in sorted(devices))
