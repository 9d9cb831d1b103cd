"""nvidia-smi: the plain table and the CSV queries. Sizes in bytes (MiB in the text); NVIDIA promises no stability.

total = reserved + used + free within 1 MiB; torch's capacity is near total - reserved. Compute processes only:
graphics-only ones appear in the plain table as type G. Unavailable values are "[N/A]" and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.diagnosis.result import Message, Process
from planner.diagnosis.sizes import Figure
from planner.units import MIB

_GPU_ROW = re.compile(r"^\|\s{1,8}(\d{1,3})\s{1,4}\S")
_MEMORY = re.compile(r"\|\s{0,24}(\d{1,9})MiB\s{0,4}/\s{0,4}(\d{1,9})MiB\s{0,4}\|")
_PROCESS_ROW = re.compile(
    r"^\|\s{1,8}(\d{1,3})\s{1,8}(?:\S{1,8}\s{1,8}\S{1,8}\s{1,12})?(\d{1,10})\s{1,8}(C\+G|G|C|M\+C)\s{1,8}(.{1,200}?)\s{1,80}"
    r"(\d{1,9}MiB|\[?N/A\]?)\s{0,4}\|$"
)
_MIB_VALUE = re.compile(r"^(\d{1,9})(?: ?MiB)?$")
_COLUMNS = {
    "memory.total": "total_bytes",
    "memory.used": "in_use_bytes",
    "memory.free": "free_bytes",
    "memory.reserved": "driver_reserved_bytes",
}
_MOST_LINES = 4_000
# A graphics process of this size is worth a name.
_LARGE_GRAPHICS_BYTES = 1 << 30


@dataclass(slots=True)
class _Gpu:
    index: int | None
    figures: dict[str, int] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    graphics: list[Process] = field(default_factory=list)


def nvidia_smi(raw: str, *, source: str, line: int, start: int) -> list[Message]:
    """One message a GPU from a plain table or from CSV with a header, in whatever else the text holds."""
    lines = raw.splitlines()[:_MOST_LINES]
    gpus = list(_plain(lines)) or list(_csv(lines))
    return [_message(gpu, source, line, start) for gpu in gpus]


def _message(gpu: _Gpu, source: str, line: int, start: int) -> Message:
    figures = {name: Figure(value=size, margin_bytes=MIB) for name, size in gpu.figures.items()}
    known = tuple(p.size_bytes for p in gpu.processes if p.size_bytes is not None)
    large = [p for p in gpu.graphics if (p.size_bytes or 0) >= _LARGE_GRAPHICS_BYTES]
    if known:
        figures["process_list"] = Figure(value=known, margin_bytes=MIB)
    unknown = len(gpu.processes) - len(known)
    return Message(
        program="nvidia-smi",
        kind="nvidia_smi",
        figures=figures,
        device=gpu.index,
        text=f"GPU {gpu.index if gpu.index is not None else '?'}, {len(gpu.processes)} compute processes listed",
        source=source,
        line=line,
        offset=start,
        processes=tuple((*gpu.processes, *large)),
        context={
            "graphics_processes": str(len(gpu.graphics)),
            "processes": str(len(gpu.processes)),
            **({"processes_without_size": str(unknown)} if unknown else {}),
        },
    )


def _plain(lines: list[str]) -> Iterator[_Gpu]:
    gpus: dict[int, _Gpu] = {}
    current: int | None = None
    for text in lines:
        text = text.rstrip()[:400]
        process = _PROCESS_ROW.match(text)
        if process:
            gpu = gpus.setdefault(int(process.group(1)), _Gpu(int(process.group(1))))
            listed = gpu.graphics if process.group(3) == "G" else gpu.processes
            listed.append(_process(process.group(2), process.group(4), _mib(process.group(5))))
            continue
        memory = _MEMORY.search(text)
        row = _GPU_ROW.match(text)
        if memory and current is not None:
            gpu = gpus.setdefault(current, _Gpu(current))
            used, total = int(memory.group(1)) * MIB, int(memory.group(2)) * MIB
            gpu.figures.update({"in_use_bytes": used, "total_bytes": total})
            current = None
        elif row:
            current = int(row.group(1))
    yield from (gpu for gpu in gpus.values() if gpu.figures)


def _csv(lines: list[str]) -> Iterator[_Gpu]:
    """`--query-gpu` and `--query-compute-apps` with a header: columns by name, values with or without their unit."""
    for index, text in enumerate(lines):
        names = [part.strip().split(" [")[0].lower() for part in text[:2_000].split(",")]
        if "used_gpu_memory" in names or "used_memory" in names:
            yield from _apps(names, lines[index + 1 :])
            return
        if not any(name in _COLUMNS for name in names):
            continue
        for number, row in enumerate(lines[index + 1 :]):
            cells = [cell.strip() for cell in row[:2_000].split(",")]
            if len(cells) != len(names):
                return
            values = {_COLUMNS[n]: _mib(c) for n, c in zip(names, cells, strict=True) if n in _COLUMNS}
            known = {name: size for name, size in values.items() if size is not None}
            at = cells[names.index("index")] if "index" in names else str(number)
            if known:
                yield _Gpu(int(at) if at.isdigit() and len(at) < 4 else None, known)
        return


def _apps(names: list[str], rows: list[str]) -> Iterator[_Gpu]:
    """Compute processes, grouped by GPU where its id is a column; names may hold commas, so count from both ends."""
    column = names.index("used_gpu_memory") if "used_gpu_memory" in names else names.index("used_memory")
    at_name = names.index("process_name") if "process_name" in names else len(names)
    by_gpu: dict[str, _Gpu] = {}
    for row in rows:
        cells = [cell.strip() for cell in row[:2_000].split(",")]
        if len(cells) < len(names):
            break
        shift = len(cells) - len(names)

        def cell(index: int, cells: list[str] = cells, shift: int = shift) -> str:
            return cells[index + (shift if index > at_name else 0)]

        key = next((cell(names.index(n)) for n in ("gpu_uuid", "gpu_bus_id") if n in names), "")
        pid = cell(names.index("pid")) if "pid" in names else ""
        name = ", ".join(cells[at_name : at_name + shift + 1]) if at_name < len(names) else ""
        by_gpu.setdefault(key, _Gpu(None)).processes.append(_process(pid, name, _mib(cell(column))))
    yield from by_gpu.values()


def _process(pid: str, path: str, size: int | None) -> Process:
    """A process by the last part of its path, which alone is printed."""
    name = re.split(r"[/\\]", path.strip().split(" --")[0])[-1].strip()
    return Process(
        pid=int(pid) if pid.isdigit() and len(pid) < 11 else None,
        size_bytes=size,
        name="".join(ch for ch in name if ch.isprintable())[:40],
    )


def without_header(text: str, *, source: str) -> list[Message]:
    """`--format=csv,noheader` of total, reserved, used, free: known by total = reserved + used + free within 2 MiB."""
    found = []
    for number, row in enumerate(text.strip().splitlines()[:64]):
        values = [_mib(cell) for cell in row[:400].split(",")]
        sizes = [v for v in values if v is not None]
        if len(sizes) != 4 or len(values) != 4 or abs(sizes[0] - sum(sizes[1:])) > 2 * MIB:
            return []
        names = ("total_bytes", "driver_reserved_bytes", "in_use_bytes", "free_bytes")
        found.append(_message(_Gpu(number, dict(zip(names, sizes, strict=True))), source, number + 1, 0))
    return found


def _mib(text: str) -> int | None:
    match = _MIB_VALUE.match(text.strip())
    return int(match.group(1)) * MIB if match else None
