"""Snapshots, statistics, summaries and messages of a real CUDA allocator that runs out, for the tests of `diagnose`.

    python benchmarks/snapshot_on_gpu.py --out FOLDER [--expandable]

Takes at most 3 GiB of the card. Writes snapshot.pickle (taken as the error is handled, history recorded),
late.pickle (taken after everything was let go of), stats.json (torch's memory_stats at the error), summary.txt and
messages.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

LIMIT_BYTES = 3 << 30
MIB = 1 << 20


def fill(torch: Any, seed: int) -> list[Any]:
    """Tensors of mixed sizes with every third let go of, on two streams and in the private pool of a graph."""
    draw = random.Random(seed)
    kept: list[Any] = []
    other = torch.cuda.Stream()
    for number in range(240):
        size = draw.choice((draw.randint(1, 4096), draw.randint(4096, MIB), draw.randint(MIB, 24 * MIB)))
        with torch.cuda.stream(other if number % 5 == 0 else torch.cuda.default_stream()):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    kept = [tensor for number, tensor in enumerate(kept) if number % 3]
    graph, fixed = torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graph):
        captured = fixed * 2 + 1
    torch.cuda.synchronize()
    return [*kept, graph, fixed, captured]


def run_out(torch: Any, kept: list[Any]) -> tuple[str, dict[str, Any]]:
    """Ask for more than the limit leaves; the message of the last error, and torch's statistics as it is handled."""
    for size in (96 * MIB, 256 * MIB):
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            while True:
                kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        del kept[-1]
    try:
        torch.empty(640 * MIB + 1, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        return str(error), torch.cuda.memory_stats()
    raise AssertionError("there was room")


def shortened(value: Any) -> Any:
    """The same with the file names of stack frames cut to their last part."""
    if isinstance(value, dict):
        return {
            key: Path(item).name if key == "filename" and isinstance(item, str) else shortened(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(shortened(item) for item in value)
    return value


def dump(torch: Any, path: Path) -> None:
    """Write a snapshot as torch.cuda.memory._dump_snapshot does."""
    path.write_bytes(pickle.dumps(shortened(torch.cuda.memory._snapshot())))


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--expandable", action="store_true")
    asked = parser.parse_args()
    if asked.expandable:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    asked.out.mkdir(parents=True, exist_ok=True)
    _, total = torch.cuda.mem_get_info()
    messages = []
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        messages.append(str(error))
    torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / total)
    torch.cuda.memory._record_memory_history(max_entries=2000, context="alloc", stacks="python")
    kept = fill(torch, 7)
    message, at_error = run_out(torch, kept)
    messages.append(message)
    dump(torch, asked.out / "snapshot.pickle")
    (asked.out / "summary.txt").write_text(torch.cuda.memory_summary())
    del kept
    torch.cuda.empty_cache()
    dump(torch, asked.out / "late.pickle")
    about = {"torch": torch.__version__, "card": torch.cuda.get_device_name(), "total_bytes": total}
    (asked.out / "stats.json").write_text(json.dumps(about | {"at_error": at_error}, indent=1))
    (asked.out / "messages.txt").write_text("\n".join(messages) + "\n")


if __name__ == "__main__":
    main()
