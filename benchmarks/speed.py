"""Speed and memory of the planner itself: medians, and ratios to the imports it cannot avoid.

    python benchmarks/speed.py [--cells 1000000]

Run it in an environment where vram-planner is installed from its wheel, so that modules are compiled.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

from planner import Deployment, find_gpu, load_model, plan_serving

SERVE = ["serve", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100", "--max-model-len", "8192", "--format", "json"]
UNAVOIDABLE = [sys.executable, "-c", "import typer; from pydantic import BaseModel"]


def alternated(first: list[str], second: list[str], *, repeats: int) -> tuple[float, float, int]:
    """(median wall seconds of each whole process, largest resident KiB of the second).

    They take turns, so that a machine that slows down slows both.
    """
    times: tuple[list[float], list[float]] = ([], [])
    resident = 0
    for _ in range(repeats):
        for command, taken in zip((first, second), times, strict=True):
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"{command[0]} stopped with {status}")
            taken.append(time.perf_counter() - started)
        resident = max(resident, usage.ru_maxrss)
    return statistics.median(times[0]), statistics.median(times[1]), resident


def plan_microseconds(*, repeats: int) -> float:
    """Median microseconds of plan_serving on a loaded model."""
    model = load_model("meta-llama/Llama-3.1-8B-Instruct")
    deployment = Deployment(gpu=find_gpu("H100"), max_model_len=8192)
    plan_serving(model, deployment)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        plan_serving(model, deployment)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def compare_seconds(cells: int, command: str) -> tuple[float, int]:
    """(wall seconds, resident KiB) of a comparison with this many cells, written as CSV to nowhere."""
    # 2 models x 5 cards x 5 formats x 2 cache types x 4 parallel sizes = 400 cells a context
    contexts = ",".join(str(1024 + 128 * index) for index in range(max(1, cells // 400)))
    arguments = [command, "compare", "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-12b-it"]
    for card in ("H100", "4090", "a100 80gb", "L40S", "h200"):
        arguments += ["--gpu", card]
    arguments += ["-q", "none,fp8,awq,gptq,w8a8", "--kv-cache-dtype", "auto,fp8", "-tp", "1,2,4,8"]
    arguments += ["--max-model-len", contexts, "--format", "csv"]
    started = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"compare stopped with {status}")
    return time.perf_counter() - started, usage.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1_000_000)
    options = parser.parse_args()
    command = str(Path(sys.executable).with_name("vram-planner"))
    base, whole, resident = alternated(UNAVOIDABLE, [command, *SERVE], repeats=25)
    print(f"{date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    print(f"import typer, pydantic: {base * 1e3:.0f} ms")
    print(f"vram-planner serve: {whole * 1e3:.0f} ms, ratio {whole / base:.2f}, {resident / 1024:.0f} MiB resident")
    print(f"plan_serving on a loaded model: {plan_microseconds(repeats=500):.0f} microseconds")
    for cells in (options.cells // 100, options.cells // 10, options.cells):
        wall, resident = compare_seconds(cells, command)
        print(f"compare, {cells:,} cells: {wall:.1f} s, {wall / cells * 1e6:.1f} us a cell, {resident / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
