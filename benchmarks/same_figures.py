"""Whether two trees give the same figures: plans made by each in its own interpreter, compared number by number.

    python benchmarks/same_figures.py BEFORE AFTER [--plans 5000] [--out docs/same_figures.md]

BEFORE and AFTER are checkouts; each is planned with this interpreter and its own `planner` package. The questions
are all bundled models by vLLM releases, cards and formats, and fine-tunes of several methods.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

_VERSIONS = ("0.6.6", "0.8.5", "0.10.2", "0.12.0", "0.17.1", "0.19.0", "0.24.0", "0.28.0", "0.33.0")
_CARDS = ("H100", "A100-80GB", "4090", "L40S", "T4", "B200")
_FORMATS = (None, "fp8", "awq", "gptq", "nvfp4", "bitsandbytes")
_METHODS = ("full", "lora", "qlora")


def questions(models: list[str], count: int) -> list[dict[str, object]]:
    """So many serving questions, spread evenly over every axis, and a third as many fine-tunes."""
    found: list[dict[str, object]] = []
    for index in range(count):
        found.append(
            {
                "kind": "serve",
                "model": models[index % len(models)],
                "version": _VERSIONS[index % len(_VERSIONS)],
                "gpu": _CARDS[(index // 7) % len(_CARDS)],
                "quantization": _FORMATS[(index // 11) % len(_FORMATS)],
                "tensor_parallel_size": (1, 2, 4)[(index // 3) % 3],
                "max_model_len": (None, 4096, 32768)[(index // 5) % 3],
            }
        )
        if index % 3 == 0:
            found.append(
                {
                    "kind": "train",
                    "model": models[(index * 5) % len(models)],
                    "method": _METHODS[index % len(_METHODS)],
                    "gpu": _CARDS[index % len(_CARDS)],
                }
            )
    return found


_ASK = """
import json, sys
from dataclasses import replace
from planner import Deployment, Recipe, find_gpu, load_model, plan_serving, plan_training
from planner.errors import PlannerError
models = {}
def model(name):
    if len(models) > 40: models.clear()
    if name not in models: models[name] = load_model(name)
    return models[name]
for line in sys.stdin:
    q = json.loads(line)
    try:
        if q["kind"] == "serve":
            plan = plan_serving(model(q["model"]), Deployment(gpu=find_gpu(q["gpu"]), engine_version=q["version"],
                quantization=q["quantization"], tensor_parallel_size=q["tensor_parallel_size"],
                max_model_len=q["max_model_len"]))
            parts = [[p.name, p.low, p.best, p.high] for s in plan.stages for p in s.inside + s.outside]
            out = {"parts": parts, "kv": plan.kv_cache_bytes, "blocks": plan.num_blocks, "tokens": plan.kv_tokens,
                "concurrency": plan.max_concurrency, "needed": plan.needed_bytes, "free": plan.outside.free_bytes,
                "load": [plan.load.gpu_peak_bytes, plan.load.host_bytes],
                "~": {"verdict": plan.verdict, "longest": plan.longest, "low": plan.kv_cache_low_bytes,
                      "high": plan.kv_cache_high_bytes, "shortfall": plan.shortfall_bytes,
                      "error": plan.startup_error and plan.startup_error.kind}}
        else:
            plan = plan_training(model(q["model"]), Recipe(method=q["method"]), find_gpu(q["gpu"]))
            out = {"parts": [[p.name, p.low, p.best, p.high] for p in plan.components], "needed": plan.needed_best,
                   "~": {"verdict": plan.verdict}}
    except PlannerError as error:
        out = {"error": type(error).__name__}
    print(json.dumps(out))
"""


def answers(tree: Path, asked: list[dict[str, object]]) -> list[dict[str, object]]:
    """What the planner of a checkout says."""
    run = subprocess.run(
        [sys.executable, "-c", _ASK],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def compare(before: list[dict[str, object]], after: list[dict[str, object]]) -> tuple[Counter[str], list[int]]:
    """How many answers are equal, differ by rule alone (the keys under "~"), or differ in a number; and which."""
    counts: Counter[str] = Counter()
    different = []
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        ruled_old, ruled_new = old.pop("~", {}), new.pop("~", {})
        if old != new:
            counts["different figures"] += 1
            different.append(index)
        elif ruled_old != ruled_new:
            assert isinstance(ruled_old, dict) and isinstance(ruled_new, dict)
            for name in ruled_old:
                if ruled_old[name] != ruled_new.get(name):
                    counts[f"by rule: {name}"] += 1
            counts["equal but for rules"] += 1
        else:
            counts["equal"] += 1
    return counts, different


def main() -> None:
    """Compare and print."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("before", type=Path)
    reader.add_argument("after", type=Path)
    reader.add_argument("--plans", type=int, default=3800)
    reader.add_argument("--out", type=Path)
    asked = reader.parse_args()
    names = sorted(path.stem for path in (asked.before / "model_configs").glob("*.json"))
    asks = questions([name.replace("--", "/", 1) for name in names if not name.startswith("_")], asked.plans)
    before, after = answers(asked.before, asks), answers(asked.after, asks)
    counts, different = compare(before, after)
    lines = [
        f"{date.today()}: {len(asks):,} plans",
        *(f"- {name}: {count:,}" for name, count in sorted(counts.items())),
    ]
    lines += [f"- {asks[index]}" for index in different[:10]]
    text = "\n".join(lines)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
