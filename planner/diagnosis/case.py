"""Findings of all inputs to one case: what is repeated is one finding, and states support the failure they belong "
"to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.diagnosis.headline import headline, whose
from planner.diagnosis.messages.wordings.not_memory import KINDS as NOT_MEMORY
from planner.diagnosis.messages.wordings.not_memory import POINTERS
from planner.diagnosis.remedies.choice import actions, cautions
from planner.diagnosis.result import Finding, Message
from planner.diagnosis.rules.ownership import matching_gpu, ownership, with_gpus
from planner.diagnosis.rules.together import with_processes, with_snapshot, with_summary
from planner.units import format_size

# What reports a state rather than an error.
STATES = ("memory summary", "gpu processes", "nvidia-smi", "memory snapshot")
_NO_DEVICE = ("host_memory", "not_a_failure")


def one_case(findings: Sequence[Finding]) -> tuple[list[Finding], list[str]]:
    """The findings to show, the failure to mend first in front, and notes on what was joined."""
    errors = _grouped([f for f in findings if f.message.program not in STATES])
    states = [f for f in findings if f.message.program in STATES]
    if any(f.message.kind not in POINTERS for f in errors):
        errors = [f for f in errors if f.message.kind not in POINTERS]
    notes: list[str] = []
    device = [f for f in errors if f.failure not in _NO_DEVICE and f.message.kind not in NOT_MEMORY]
    if device and states:
        errors = [_supported(f, states) if f in device else f for f in errors]
        notes.append("states (nvidia-smi, summaries, snapshots) are of their own moments: compared, never added")
        notes += _mapping_notes(device, states)
        states = []
    found = [_finished(f) for f in _ordered(_with_host([*errors, *states]))]
    return found, notes


def _mapping_notes(errors: Sequence[Finding], states: Sequence[Finding]) -> list[str]:
    """Which GPU of nvidia-smi a message's ordinal was taken for."""
    gpus = [s.message for s in states if s.message.program == "nvidia-smi"]
    if not gpus:
        return []
    lost = {f.message.device for f in errors if matching_gpu(f.message, gpus) is None and f.message.device is not None}
    if lost:
        listed = ", ".join(str(device) for device in sorted(lost))
        return [f"the messages are of device {listed}, the states of none that matches it: they are not compared"]
    return ["GPU N of a message is the ordinal within CUDA_VISIBLE_DEVICES, not nvidia-smi's index"]


def _grouped(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for the same failure of several ranks, or of several times."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_key(finding), []).append(finding)
    return [_joined(group) for group in groups.values()]


def _key(finding: Finding) -> object:
    message, context = finding.message, finding.message.context
    if finding.failure == "not_a_failure" or message.kind in NOT_MEMORY:
        return (finding.failure, message.kind)
    if finding.failure == "host_memory":
        return (finding.failure, message.program)
    capacity = message.capacity
    card = None if capacity is None else round(capacity / (1 << 30))
    return (message.program, finding.failure, context.get("engine"), context.get("phase"), card)


def _joined(group: Sequence[Finding]) -> Finding:
    """The first of the group (of host failures the surest), with the count and the devices of all."""
    first = min(group, key=lambda f: ("high", "medium", "low").index(f.verdict.confidence) if _is_host(f) else 0)
    if len(group) == 1 and first.message.repeated == 1:
        return first
    devices = tuple(sorted({f.message.device for f in group if f.message.device is not None}))
    message = replace(first.message, repeated=sum(f.message.repeated for f in group), devices=devices)
    sizes = sorted({f.message.bytes_of("tried_bytes") or 0 for f in group})
    evidence = first.verdict.evidence
    if len(group) > 1:
        listed = f"on devices {', '.join(map(str, devices))}" if len(devices) > 1 else ""
        evidence = (*evidence, f"{message.repeated} messages of this failure {listed}".rstrip() + _range(sizes))
    return replace(first, message=message, verdict=replace(first.verdict, evidence=evidence))


def _range(sizes: Sequence[int]) -> str:
    if len(sizes) < 2 or not sizes[0]:
        return ""
    return f", requests of {format_size(sizes[0])} to {format_size(sizes[-1])}"


def _is_host(finding: Finding) -> bool:
    return finding.failure == "host_memory"


def _supported(finding: Finding, states: Sequence[Finding]) -> Finding:
    """The finding with what the states say of it."""
    message = finding.message
    gpus = [s.message for s in states if s.message.program in ("nvidia-smi", "gpu processes")]
    own = with_gpus(ownership(message), message, gpus) if gpus else ownership(message)
    verdict = with_processes(message, finding.verdict, own) if gpus else finding.verdict
    tables = dict(finding.tables)
    if gpus:
        tables["nvidia_smi"] = [_gpu_row(gpu) for gpu in gpus]
    for state in states:
        if not _same_device(message, state.message):
            continue
        if state.message.program == "memory summary":
            verdict = with_summary(verdict, state.message, state.verdict)
        elif state.message.program == "memory snapshot":
            verdict = with_snapshot(verdict, state.message, state.verdict)
            tables = {**state.tables, **tables}
    return replace(finding, verdict=verdict, ownership=own, tables=tables)


def _same_device(message: Message, state: Message) -> bool:
    return message.device is None or state.device is None or message.device == state.device


def _gpu_row(gpu: Message) -> dict[str, object]:
    return {
        "index": gpu.device,
        **{name: figure.value for name, figure in gpu.figures.items() if isinstance(figure.value, int)},
        "processes": [{"pid": p.pid, "name": p.name, "size_bytes": p.size_bytes} for p in gpu.processes],
    }


def _with_host(findings: list[Finding]) -> list[Finding]:
    """A device error with much free memory, in a log that also says that the host ran out: read as the host's."""
    if not any(_is_host(f) for f in findings):
        return findings
    sentence = "the same input also says that host memory ran out; CUDA reports that as out of memory too"
    return [
        replace(f, verdict=replace(f.verdict, second="host_memory", evidence=(*f.verdict.evidence, sentence)))
        if f.failure == "limit_not_capacity"
        and f.verdict.second != "host_memory"
        and "allowed_bytes" not in f.figures
        and f.message.program.startswith("pytorch")
        else f
        for f in findings
    ]


def _ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Failures of memory in the order of the inputs, the unsure after the sure, then others, states, warnings."""

    def rank(finding: Finding) -> int:
        if finding.failure == "not_a_failure":
            return 5
        if finding.message.program in STATES and finding.message.program != "memory snapshot":
            return 4
        if finding.message.kind in NOT_MEMORY:
            return 2
        return 1 if finding.verdict.confidence == "low" else 0

    return sorted(findings, key=rank)


def _finished(finding: Finding) -> Finding:
    """The finding with its shares, actions and cautions."""
    own = finding.ownership if finding.ownership.total is not None else ownership(finding.message)
    finding = replace(finding, ownership=own)
    return replace(
        finding,
        headline=headline(finding),
        whose=whose(finding),
        actions=actions(finding.message, finding.verdict, own),
        cautions=cautions(finding.message, finding.verdict),
    )
