"""The whole way: inputs to findings, failures first; figures of different inputs are compared by no sum, only noted."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from planner.diagnosis.messages.assembly import read_passages
from planner.diagnosis.messages.passages import KEPT_CHARS, TABLE_NEEDLES, Passage, decode, scan
from planner.diagnosis.remedies.actions import actions, cautions
from planner.diagnosis.result import Diagnosis, Finding, Message, Verdict
from planner.diagnosis.rules.classify import classify
from planner.diagnosis.rules.nvidia_smi import judge_smi
from planner.diagnosis.rules.snapshot import snapshot_findings
from planner.diagnosis.rules.summary import judge_summary
from planner.diagnosis.sources import STDIN, kind_of, opened
from planner.diagnosis.states.memory_summary import gpu_processes, memory_stats, memory_summaries
from planner.diagnosis.states.nvidia_smi import nvidia_smi, without_header
from planner.diagnosis.states.snapshot_reader import MOST_JSON_BYTES, read_json, read_pickle
from planner.errors import NotRecognised, SourceError

_SMALL_TEXT_CHARS = 65_536
# What reports a state rather than an error.
_STATES = ("memory summary", "gpu processes", "nvidia-smi", "memory snapshot")

LOOKED_FOR = (
    "out-of-memory messages of PyTorch, vLLM, SGLang, TGI, TensorRT, llama.cpp/ggml, Ollama, ExLlama, JAX/XLA, "
    "TensorFlow, ONNX Runtime, Paddle, cuBLAS, cuDNN, NCCL, bitsandbytes, killed processes (137, OOMKilled), "
    "memory_summary and memory_stats, memory snapshots, nvidia-smi"
)


def diagnose(*sources: str | Path) -> Diagnosis:
    """The diagnosis of one or more inputs together.

    Args:
        sources: a text (anything with a line break or a space that is no file), a path, or "-" for standard input.

    Raises:
        NotRecognised: no input holds anything that is looked for.
        SourceError: an input cannot be read, or is a damaged or hostile snapshot.
    """
    if not sources:
        raise SourceError("nothing to diagnose; give a text, a file or - for standard input")
    findings: list[Finding] = []
    notes: list[str] = []
    empty = []
    for source in sources:
        found, said = _read(source)
        findings += found
        notes += said
        if not found:
            empty.append("the text" if _is_text(source) else "standard input" if source == STDIN else str(source))
    if findings:
        notes += [f"{name}: nothing was recognised" for name in empty]
    return _diagnosis(findings, notes, empty)


def diagnose_text(text: str, *, name: str = "text") -> Diagnosis:
    """The diagnosis of one text.

    Raises:
        NotRecognised: the text holds nothing that is looked for.
        SourceError: the text is empty.
    """
    return _diagnosis(*_from_text(text, name), [name])


def _diagnosis(findings: list[Finding], notes: list[str], names: list[str]) -> Diagnosis:
    if not findings:
        raise NotRecognised(f"{', '.join(names[:5])}: nothing was recognised; looked for {LOOKED_FOR}")
    return Diagnosis(findings=tuple(_ordered(findings)), notes=(*notes, *_across(findings)))


def _from_text(text: str, name: str) -> tuple[list[Finding], list[str]]:
    return _from_stream(io.BufferedReader(io.BytesIO(text.encode("utf-8", "replace"))), name)


def _read(source: str | Path) -> tuple[list[Finding], list[str]]:
    text = str(source)
    if _is_text(source):
        return _from_text(text, "text")
    with opened(text) as stream:
        return _from_stream(stream, "standard input" if text == STDIN else text)


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


def _from_stream(stream: BinaryIO, name: str) -> tuple[list[Finding], list[str]]:
    kind = kind_of(stream, name)
    if kind == "pickle":
        return _from_snapshot(stream, name)
    if kind == "json":
        return _from_json(stream, name)
    return _from_chunks(decode(stream), name)


def _from_snapshot(stream: BinaryIO, name: str) -> tuple[list[Finding], list[str]]:
    stats = b"OrderedDict" in stream.peek(512)[:512]  # type: ignore[attr-defined]
    try:
        snapshot = read_pickle(stream)
    except SourceError as error:
        hint = "; a pickled memory_stats() is not read: save it with json.dump" if stats else ""
        raise SourceError(f"{name}: {error}{hint}") from None
    return [_finding(m, v, tables) for m, v, tables in snapshot_findings(snapshot, source=name)], []


def _from_json(stream: BinaryIO, name: str) -> tuple[list[Finding], list[str]]:
    """memory_stats, a snapshot saved as JSON, or a log whose lines are JSON objects."""
    head = stream.read(MOST_JSON_BYTES + 1)
    if len(head) <= MOST_JSON_BYTES:
        text = head.decode("utf-8", "replace")
        stats = memory_stats(text, source=name)
        if stats:
            return [_finding(m, judge_summary(m)) for m in stats], []
        if '"segments"' in text[:4_096] or '"total_size"' in text[:4_096]:
            snapshot = read_json(text)
            return [_finding(m, v, t) for m, v, t in snapshot_findings(snapshot, source=name)], []
    return _from_chunks(decode(_joined(head, stream)), name)


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


def _from_chunks(chunks: Iterable[str], name: str) -> tuple[list[Finding], list[str]]:
    result = scan(chunks)
    messages, uncounted = read_passages(result.passages, name)
    findings = [_finding(m, classify(m)) for m in messages]
    findings += [_finding(m, _judge_state(m)) for m in _states(result.passages, name)]
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
    return findings, notes


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
    return Finding(
        message=message,
        verdict=verdict,
        actions=actions(message, verdict),
        cautions=cautions(message, verdict),
        tables=tables or {},
    )


def _ordered(findings: list[Finding]) -> list[Finding]:
    """Failures in the order of the inputs, then states, then warnings that were survived."""
    findings = _with_host(findings)

    def rank(finding: Finding) -> int:
        if finding.failure == "not_a_failure":
            return 2
        return 1 if finding.message.program in _STATES and finding.message.program != "memory snapshot" else 0

    return sorted(findings, key=rank)


def _with_host(findings: list[Finding]) -> list[Finding]:
    """A device error with much free memory, in a log that also says that the host ran out: read as the host's."""
    if not any(f.failure == "host_memory" for f in findings):
        return findings
    sentence = "the same input also says that host memory ran out; CUDA reports that as out of memory too"
    return [
        replace(f, verdict=replace(f.verdict, second="host_memory", evidence=(*f.verdict.evidence, sentence)))
        if f.failure == "limit_not_capacity" and f.verdict.second != "host_memory" and "allowed_bytes" not in f.figures
        else f
        for f in findings
    ]


def _across(findings: list[Finding]) -> list[str]:
    """Notes on inputs of different devices or moments; their figures are never summed."""
    errors = [f for f in findings if f.message.program not in _STATES]
    states = [f for f in findings if f.message.program in _STATES]
    notes = []
    devices = {f.message.device for f in errors if f.message.device is not None}
    others = {f.message.device for f in states if f.message.device is not None}
    if errors and states:
        notes.append(
            "messages and states (nvidia-smi, summaries, snapshots) are of different moments: none is added to another"
        )
        if devices and others and not devices & others:
            notes.append(
                f"the messages are of device {_listed(devices)}, the states of device {_listed(others)}: "
                "they are not compared"
            )
        elif devices and any(f.message.program == "nvidia-smi" for f in states):
            notes.append("GPU N of a message is the ordinal within CUDA_VISIBLE_DEVICES, not nvidia-smi's index")
    if len(devices) > 1:
        notes.append(f"the messages are of devices {_listed(devices)}: each is read by itself")
    times = {f.message.context["time"] for f in errors if "time" in f.message.context}
    if len(times) > 1:
        notes.append(f"the messages are of {len(times)} different times: each is read by itself")
    return notes


def _listed(devices: Iterable[int]) -> str:
    return ", ".join(str(d) for d in sorted(devices))
