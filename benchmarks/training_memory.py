"""Reserved and device memory of fine-tunes, planned by replay, beside what was read: the accuracy of the bands.

    python benchmarks/training_memory.py [CASES.jsonl]

Rows of quality A of the bundled cases (or of the file) that state torch's reserved memory or nvidia-smi's reading.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from planner import PlannerError
from planner.model.load import load_model
from planner.training.plan import plan_training
from planner.units import GIB
from planner.validation.training import card_of as card
from planner.validation.training import cases, recipe_of


def main() -> None:
    """Print the shares within 5 %, inside the band, and the band's median width."""
    rows = cases()
    if len(sys.argv) > 1:
        rows = tuple(json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines())
    reserved: list[float] = []
    inside: list[bool] = []
    widths: list[float] = []
    for row in rows:
        read = row["measured"]
        torch_gib, device_gib = read.get("peak_reserved_gib"), read.get("nvidia_smi_gib")
        if row.get("quality") != "A" or not row.get("config") or not (torch_gib or device_gib):
            continue
        gpu = card(row)
        try:
            plan = plan_training(
                load_model(row["config"]), recipe_of(row), gpu, gpu_memory_bytes=gpu.total_memory_bytes
            )
        except PlannerError as error:
            print(f"{row['id']}: {error}")
            continue
        memory = plan.memory
        assert memory is not None
        if torch_gib:
            reserved.append(memory.reserved.best / GIB / torch_gib - 1)
        if device_gib:
            device = memory.device
            inside.append(device.low <= device_gib * GIB <= device.high)
            widths.append((device.high - device.low) / device.best)
    if reserved:
        near = sum(abs(error) <= 0.05 for error in reserved) / len(reserved)
        mean = statistics.mean(map(abs, reserved))
        print(f"reserved: n = {len(reserved)}, mean {mean:.1%}, within 5 %: {near:.1%}")
    if inside:
        share = sum(inside) / len(inside)
        print(f"nvidia-smi: n = {len(inside)}, inside {share:.1%}, median width {statistics.median(widths):.3f}")


if __name__ == "__main__":
    main()
