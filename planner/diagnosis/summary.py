"""torch.cuda.memory_summary(), memory_stats() as JSON, and list_gpu_processes(). Sizes in bytes.

The table's numbers are floored to the unit of their column, so each has a margin of one unit; KB, MB and GB of old
versions are 1024-based like KiB, MiB and GiB. Counts print K and M for thousands and millions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from planner.diagnosis.result import FailureClass, Message, Verdict
from planner.diagnosis.sizes import Figure
from planner.diagnosis.text import excerpt
from planner.diagnosis.thresholds import ALLOCATED_PERCENT, percent
from planner.units import format_size

_HEADER = re.compile(r"memory summary, device ID (\d{1,3})", re.IGNORECASE)
_COUNTS = re.compile(r"CUDA OOMs: (\d{1,12}) {0,40}\| {0,40}cudaMalloc retries: (\d{1,12})")
_ROW = re.compile(
    r"\|\s{0,8}(from )?([A-Za-z][\w -]{1,40}?)\s{0,30}\|"
    r"((?:\s{0,12}\d{1,18}\s{0,6}(?:[KMGTP]?i?B|[KM])?\s{0,12}\|){4})"
)
_CELL = re.compile(r"(\d{1,18})\s{0,6}([KMGTP]?i?B|[KM])?")
_SCALE = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_PROCESS = re.compile(r"process\s{1,8}(\d{1,10}) uses\s{1,12}(\d{1,9}\.\d{1,6}) MB GPU memory")
# Part of the reserved bytes in free pieces of split blocks from which fragmentation is worth a look (25%).
_NON_RELEASABLE_PERCENT = 25
_MOST_JSON_BYTES = 16 << 20

# Row of the table and key of memory_stats -> stem of the figure's name.
_METRICS = {
    "Allocated memory": ("allocated_bytes", "allocated"),
    "Active memory": ("active_bytes", "active"),
    "Requested memory": ("requested_bytes", "tensor_requested"),
    "GPU reserved memory": ("reserved_bytes", "reserved_total"),
    "Non-releasable memory": ("inactive_split_bytes", "non_releasable"),
}


def memory_summaries(raw: str, *, source: str, line: int, start: int) -> list[Message]:
    """The summaries in a text, one message a device."""
    heads = list(_HEADER.finditer(raw))
    found = []
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else min(len(raw), head.start() + 12_000)
        block = raw[head.start() : end]
        figures = _table(block)
        if figures:
            found.append(
                Message(
                    program="memory summary",
                    kind="memory_summary",
                    version_hint="torch >= 2.1" if "MiB" in block or "KiB" in block else "torch 1.4 to 2.0",
                    figures=figures,
                    device=int(head.group(1)),
                    text=excerpt(" ".join(head.group().split())),
                    source=source,
                    line=line + raw.count("\n", 0, head.start()),
                    offset=start + head.start(),
                )
            )
    return found


def _table(block: str) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    counts = _COUNTS.search(block)
    if counts:
        figures["num_ooms"] = Figure(value=int(counts.group(1)))
        figures["num_alloc_retries"] = Figure(value=int(counts.group(2)))
    for text in block.splitlines():
        match = _ROW.search(text[:400])
        name = match.group(2).strip() if match and not match.group(1) else ""
        if match is None or name not in _METRICS:
            continue
        cells = [_cell(number, unit) for number, unit in _CELL.findall(match.group(3))]
        stem = _METRICS[name][1]
        figures.setdefault(f"{stem}_bytes", cells[0])
        figures.setdefault(f"peak_{stem}_bytes", cells[1])
    return figures if "allocated_bytes" in figures or "num_ooms" in figures else {}


def _cell(number: str, unit: str) -> Figure:
    scale = _SCALE[(unit or "").upper()[:1]]
    return Figure(value=int(number) * scale, margin_bytes=scale if scale > 1 else 0, text=f"{number} {unit}".strip())


def memory_stats(text: str, *, source: str) -> list[Message]:
    """memory_stats() or memory_stats_as_nested_dict() saved as JSON; empty when the text is something else."""
    if len(text) > _MOST_JSON_BYTES or "allocated_bytes" not in text:
        return []
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(data, dict):
        return []
    figures = {}
    for key, stem in _METRICS.values():
        for stat, prefix in (("current", ""), ("peak", "peak_")):
            value = _stat(data, key, "all", stat)
            if value is not None:
                figures[f"{prefix}{stem}_bytes"] = Figure(value=value)
    for key in ("num_ooms", "num_alloc_retries"):
        value = _stat(data, key)
        if value is not None:
            figures[key] = Figure(value=value)
    if "allocated_bytes" not in figures:
        return []
    return [
        Message(program="memory summary", kind="memory_stats", figures=figures, source=source, text="memory_stats()")
    ]


def _stat(data: Mapping[str, Any], *path: str) -> int | None:
    value: Any = data.get(".".join(path))
    if value is None:
        value = data
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def gpu_processes(raw: str, *, source: str, line: int, start: int) -> list[Message]:
    """list_gpu_processes(): the processes of one GPU; its "MB" are 2^20 bytes."""
    matches = list(_PROCESS.finditer(raw))
    if not matches:
        return []
    gpu = re.search(r"GPU:(\d{1,3})", raw[max(0, matches[0].start() - 200) : matches[0].start()])
    sizes = tuple(round(float(m.group(2)) * (1 << 20)) for m in matches)
    return [
        Message(
            program="gpu processes",
            kind="gpu_processes",
            figures={
                "process_list": Figure(value=sizes),
                "in_use_bytes": Figure(value=sum(sizes), margin_bytes=1 << 10),
            },
            device=int(gpu.group(1)) if gpu else None,
            text=excerpt(f"{len(sizes)} processes"),
            source=source,
            line=line + raw.count("\n", 0, matches[0].start()),
            offset=start + matches[0].start(),
        )
    ]


def judge_summary(message: Message) -> Verdict:
    """What an allocator's summary says by itself: it knows neither the capacity nor the request."""
    ooms, retries = message.bytes_of("num_ooms"), message.bytes_of("num_alloc_retries") or 0
    allocated = message.bytes_of("peak_allocated_bytes") or message.bytes_of("allocated_bytes") or 0
    reserved = message.bytes_of("peak_reserved_total_bytes") or message.bytes_of("reserved_total_bytes") or 0
    split = message.bytes_of("non_releasable_bytes") or 0
    current = message.bytes_of("reserved_total_bytes") or 0
    evidence = [
        f"peak allocated {format_size(allocated)} of peak reserved {format_size(reserved)} "
        f"({percent(allocated, reserved)}%)",
        f"{format_size(split)} in free pieces of split blocks now ({percent(split, current)}% of reserved)",
    ]
    if split == 0 and ooms:
        evidence.append("expandable segments never count there, so 0 does not exclude fragmentation")
    if retries:
        evidence.append(f"{retries} times the cache was given back to find room: memory pressure")
    failure: FailureClass
    second: FailureClass | None = None
    if ooms == 0:
        failure, rule = "not_a_failure", "this allocator counted no out-of-memory error"
        second = "device_full" if retries else None
    elif reserved == 0:
        failure, rule = "undecided", "the table is empty: cudaMallocAsync keeps no such statistics"
    elif split * 100 >= current * _NON_RELEASABLE_PERCENT and current:
        failure, rule = "fragmentation_clue", f"non-releasable memory is {_NON_RELEASABLE_PERCENT}% of reserved or more"
        second = "device_full"
    elif allocated * 100 >= reserved * ALLOCATED_PERCENT:
        failure, rule = "device_full", f"{ALLOCATED_PERCENT}% or more of what was reserved was allocated at the peak"
    else:
        failure, rule = "undecided", "neither nearly all allocated nor much in split blocks"
        second = "fragmentation_clue"
    return Verdict(
        failure=failure,
        second=second,
        confidence="low" if failure != "not_a_failure" else "medium",
        rule=rule,
        evidence=tuple(evidence),
        would_change=("the capacity and the request: the error's own message has both",),
        advise=("look_at_snapshot",) if failure in ("fragmentation_clue", "undecided") else (),
        caution=("after_exception",),
    )
