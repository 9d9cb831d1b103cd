"""torch.cuda.memory_summary(), memory_stats() as JSON, and list_gpu_processes(). Sizes in bytes.

The table's numbers are floored to the unit of their column, so each has a margin of one unit; KB, MB and GB of old
versions are 1024-based like KiB, MiB and GiB. Counts print K and M for thousands and millions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from planner.diagnosis.messages.cleaning import excerpt
from planner.diagnosis.result import Message, Process
from planner.diagnosis.sizes import Figure

_HEADER = re.compile(r"memory summary, device ID (\d{1,3})", re.IGNORECASE)
_COUNTS = re.compile(r"CUDA OOMs: (\d{1,12}) {0,40}\| {0,40}cudaMalloc retries: (\d{1,12})")
_ROW = re.compile(
    r"\|\s{0,8}(from )?([A-Za-z][\w -]{1,40}?)\s{0,30}\|"
    r"((?:\s{0,12}\d{1,18}\s{0,6}(?:[KMGTP]?i?B|[KM])?\s{0,12}\|){4})"
)
_CELL = re.compile(r"(\d{1,18})\s{0,6}([KMGTP]?i?B|[KM])?")
_SCALE = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_PROCESS = re.compile(r"process\s{1,8}(\d{1,10}) uses\s{1,12}(\d{1,9}\.\d{1,6}) MB GPU memory")
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
            processes=tuple(
                Process(pid=int(m.group(1)), size_bytes=size) for m, size in zip(matches, sizes, strict=True)
            ),
            source=source,
            line=line + raw.count("\n", 0, matches[0].start()),
            offset=start + matches[0].start(),
        )
    ]
