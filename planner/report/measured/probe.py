"""What the probe measured beside what was planned, for people and programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from tabulate import tabulate

from planner.probe.figures import Figure, Measurement
from planner.probe.record import record
from planner.units import format_size
from planner.version import SCHEMA

_LABELS = {
    "weights": "weights",
    "buffers": "buffers",
    "kv_cache": "KV cache",
    "prefill_peak": "peak of prefill",
    "decode_peak": "peak of decode",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "saved_activations": "saved activations",
    "forward_peak": "peak of forward and loss",
    "backward_peak": "peak of backward",
    "step_peak": "peak of the optimizer step",
    "peak_allocated": "peak of the step",
    "reserved": "reserved by torch",
    "total_memory": "total memory",
    "matrix_workspace": "matrix workspace",
    "context": "context",
    "num_gpu_blocks": "blocks",
    "kv_tokens": "tokens",
}


def measurement_json(found: Measurement, *, tolerance: float) -> dict[str, object]:
    """The measurement as plain values, sizes in bytes."""
    failure = found.out_of_memory
    return {
        "schema": SCHEMA,
        "query": {
            "command": found.command,
            "model": found.model,
            "tolerance": tolerance,
            "workload": dict(found.workload),
        },
        "device": {
            "name": found.device.name,
            "kind": found.device.kind,
            "total_bytes": found.device.total_bytes,
            "free_bytes": found.device.free_bytes,
        },
        "versions": dict(found.versions),
        "layers": {"run": [found.depths.shallow, found.depths.deep], "whole": found.depths.total},
        "rows": [figure_row(figure) for figure in found.figures],
        "rows_at_depth": [figure_row(figure) for figure in found.at_depth],
        "driver": {"used_before_bytes": found.used_before_bytes, "used_peak_bytes": found.used_peak_bytes},
        "out_of_memory": None
        if failure is None
        else {"phase": failure.phase, "peak_bytes": failure.peak_bytes, "message": failure.message},
        "within_tolerance": found.within(tolerance),
        "notes": list(found.notes),
        "record": record(found),
    }


def figure_row(figure: Figure) -> dict[str, object]:
    """One figure: bytes planned and measured, and the plan's error as a fraction of what was measured."""
    return {
        "figure": figure.name,
        "planned": figure.planned,
        "measured": figure.measured,
        "error": figure.error,
        "judged": figure.judged and figure.planned is not None,
    }


def verdict_line(found: Measurement, *, tolerance: float) -> str:
    """The answer in one line."""
    if found.out_of_memory is not None:
        failure = found.out_of_memory
        return f"out of memory in {failure.phase}, {format_size(failure.peak_bytes)} allocated: {failure.message}"
    judged = [figure for figure in found.figures if figure.judged and figure.error is not None]
    if not judged:
        return f"measured, nothing to compare with: {found.device.name}"
    worst = max(judged, key=lambda figure: abs(figure.error or 0.0))
    word = "within" if found.within(tolerance) else "not within"
    return (
        f"{word} {tolerance:.0%}: {found.model} on {found.device.name}, worst {_label(worst.name)}"
        f" {100 * (worst.error or 0.0):+.2f}%"
    )


def measurement_table(found: Measurement, *, tolerance: float, markdown: bool = False) -> str:
    """Planned, measured and difference by figure, then the device and the versions."""
    rows = [
        (_label(figure.name), _size(figure.planned), _size(figure.measured), *_difference(figure), _judged(figure))
        for figure in found.figures
    ]
    table = tabulate(
        rows,
        headers=("figure", "planned", "measured", "difference", "%", "judged"),
        tablefmt="pipe" if markdown else "simple",
        disable_numparse=True,
        colalign=("left", "right", "right", "right", "right", "left"),
    )
    lines = [verdict_line(found, tolerance=tolerance), "", table, ""]
    device = found.device
    lines.append(
        f"device: {device.name} ({device.kind}), {format_size(device.total_bytes)},"
        f" {format_size(device.free_bytes)} free; in use by the driver's account before"
        f" {format_size(found.used_before_bytes)}, at most {format_size(found.used_peak_bytes)}"
    )
    lines.append("versions: " + ", ".join(f"{name} {text}" for name, text in found.versions.items()))
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines)


def render_measurement(found: Measurement, *, format: str, tolerance: float) -> str:
    """The measurement in the format asked for ("table", "json", "csv" or "markdown")."""
    if format == "json":
        return json.dumps(measurement_json(found, tolerance=tolerance), indent=1)
    if format == "csv":
        return rows_csv([figure_row(figure) for figure in found.figures])
    return measurement_table(found, tolerance=tolerance, markdown=format == "markdown")


def rows_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of plain values as CSV, with the fields of the first as heading."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    fields = list(rows[0]) if rows else []
    writer.writerow(fields)
    writer.writerows([row.get(field) for field in fields] for row in rows)
    return text.getvalue().rstrip("\n")


def render_dry_run(found: Mapping[str, object], *, format: str) -> str:
    """What would be done: the depths, and the plan at each of them."""
    if format == "json":
        return json.dumps({"schema": SCHEMA, "dry_run": True, **found}, indent=1)
    planned = found["planned"]
    assert isinstance(planned, list)
    if format == "csv":
        return rows_csv(planned)
    names = [name for name in planned[0] if name != "layers"]
    rows = [(row["layers"], *(_size(row[name]) for name in names)) for row in planned]
    table = tabulate(
        rows,
        headers=("layers", *(_label(name) for name in names)),
        tablefmt="pipe" if format == "markdown" else "simple",
        disable_numparse=True,
        colalign=("right",) * (1 + len(names)),
    )
    runs = found["runs_at_layers"]
    assert isinstance(runs, list)
    depths = " and ".join(str(depth) for depth in runs)
    return f"would run {found['command']} of {found['model']} with {depths} layers; planned:\n\n{table}"


def _label(name: str) -> str:
    return _LABELS.get(name, name)


def _size(value: object) -> str:
    return format_size(value) if isinstance(value, int) else "-"


def _difference(figure: Figure) -> tuple[str, str]:
    if figure.error is None or figure.planned is None or figure.measured is None:
        return "-", "-"
    return format_size(figure.planned - figure.measured), f"{100 * figure.error:+.2f}"


def _judged(figure: Figure) -> str:
    return "yes" if figure.judged and figure.planned is not None else ""
