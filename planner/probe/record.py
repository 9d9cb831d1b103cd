"""A measurement as a measured case, in the schema that `validate --cases` reads: one JSON object a line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from planner.errors import ProbeError
from planner.probe.figures import Figure, Measurement
from planner.units import GIB


def record(found: Measurement) -> dict[str, object]:
    """The case: sizes in GiB; what was extrapolated to full depth stands under `inferred`."""
    depths = found.depths
    deployment: dict[str, object] = {
        "engine": "transformers",
        "engine_version": found.versions.get("transformers", ""),
        "probe": found.command,
        "device": found.device.kind,
        "gpu": found.device.name,
        "gpu_memory_gib": found.device.total_bytes / GIB,
        "versions": dict(found.versions),
        "workload": {name: value for name, value in found.workload.items() if value is not None},
    }
    if depths.deep != depths.total:
        deployment["num_hidden_layers"] = depths.deep
    measured: dict[str, object] = dict(_gib(found.at_depth))
    measured |= {
        "driver_used_before_gib": found.used_before_bytes / GIB,
        "driver_used_peak_gib": found.used_peak_bytes / GIB,
    }
    if found.out_of_memory is not None:
        failure = found.out_of_memory
        measured["error"] = failure.message
        measured["error_phase"] = failure.phase
        measured["peak_before_error_gib"] = failure.peak_bytes / GIB
    inferred = dict(_gib(found.figures)) if depths.deep != depths.total else {}
    return {
        "id": _name(found, deployment),
        "source": "vram-planner probe",
        "model": found.model,
        "config": found.config,
        "quality": "A",
        "deployment": deployment,
        "measured": measured,
        "inferred": inferred,
        "notes": " ".join(found.notes),
    }


def _gib(figures: tuple[Figure, ...]) -> Mapping[str, object]:
    return {f"{figure.name}_gib": figure.measured / GIB for figure in figures if figure.measured is not None}


def _name(found: Measurement, deployment: Mapping[str, object]) -> str:
    """The same for the same workload on the same device with the same libraries."""
    text = json.dumps([found.model, deployment], sort_keys=True, default=str)
    short = Path(found.model).stem.lower()
    return f"probe-{found.command}-{short}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def append_record(path: Path, case: Mapping[str, object]) -> None:
    """Add a case to a file.

    Raises:
        ProbeError: the file cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(case, sort_keys=True) + "\n")
    except OSError as error:
        raise ProbeError(f"{path}: cannot be written ({error.strerror})", field="record") from None
