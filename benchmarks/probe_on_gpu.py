"""The probe over 12 serve and 24 train configurations on one GPU, and its records as measured cases.

    python benchmarks/probe_on_gpu.py --records gpu.jsonl [--device cuda] [--layers 4] [--only serve|train] [--list]

Four architectures (grouped queries, windows beside full attention, parallel residuals, routed experts); serving at two
lengths and two batches; full, LoRA and QLoRA, with and without checkpointing, eager and SDPA, at two lengths. Weights
are random and nothing is downloaded. A configuration whose plan does not fit in what is free is skipped and says so.
`vram-planner validate --cases gpu.jsonl` scores what it writes.

The records of an H200 (2026-11-29) are planner/validation/cases/probe_h200.jsonl. With --device cpu it runs anywhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from planner import PlannerError, Recipe
from planner.model.shallow.subject import Subject, read_subject
from planner.probe.figures import Measurement
from planner.probe.record import append_record, record
from planner.probe.session import measure_serve, measure_train
from planner.report.measured.probe import verdict_line
from planner.training.generation import Generation
from planner.training.plain_loop import plain_loop_recipe

# model -> (adapter targets, layers to run; None: all)
MODELS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "Qwen/Qwen2.5-0.5B": (("q_proj", "v_proj"), None),
    "google/gemma-3-1b-it": (("q_proj", "v_proj"), None),
    "EleutherAI/pythia-1b": (("query_key_value",), None),
    "Qwen/Qwen3-30B-A3B": (("q_proj", "v_proj"), 4),
}
TOLERANCE = 0.05


@dataclass(frozen=True)
class Configuration:
    """One measurement to make."""

    kind: str
    model: str
    layers: int | None
    inputs: Generation | Recipe

    def __str__(self) -> str:
        run = self.inputs
        if isinstance(run, Generation):
            return f"serve {self.model} batch {run.batch_size} x {run.input_len}"
        checkpointing = ", checkpointed" if run.gradient_checkpointing else ""
        return f"train {self.model} {run.method} {run.attn_implementation} x {run.max_seq_length}{checkpointing}"


def serve_configurations() -> Iterator[Configuration]:
    """Three for each architecture: short, long, and a batch."""
    for (model, (_, layers)), (batch, length) in product(MODELS.items(), ((1, 512), (1, 4096), (8, 1024))):
        yield Configuration("serve", model, layers, Generation(batch_size=batch, input_len=length, output_len=16))


def train_configurations() -> Iterator[Configuration]:
    """Six for each architecture: three methods, each once checkpointed with SDPA at 2048 and once without at 512.

    Eager attention takes turns with SDPA in the runs without checkpointing.
    """
    for index, (model, (targets, layers)) in enumerate(MODELS.items()):
        for place, (method, checkpointing) in enumerate(product(("full", "lora", "qlora"), (False, True))):
            eager = not checkpointing and (index + place // 2) % 2 == 0
            recipe = Recipe(
                method=method,
                gradient_checkpointing=checkpointing,
                attn_implementation="eager" if eager else "sdpa",
                max_seq_length=2048 if checkpointing else 512,
                per_device_train_batch_size=2,
                lora_target_modules=() if method == "full" else targets,
                padding=False,
            )
            yield Configuration("train", model, layers, plain_loop_recipe(recipe))


def measure(one: Configuration, subject: Subject, device: str, layers: int | None) -> Measurement:
    """Run a configuration."""
    depth = layers if layers is not None else one.layers
    if isinstance(one.inputs, Generation):
        return measure_serve(subject, one.inputs, device=device, layers=depth)
    return measure_train(subject, one.inputs, device=device, layers=depth)


def main(arguments: list[str], say: Callable[[str], None] = print) -> int:
    """Run them all; 0 when every one was within 5%, 1 when not, 2 when none could be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Path("probe_records.jsonl"), help="appended to")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, help="about how many layers to run of every model")
    parser.add_argument("--only", choices=("serve", "train"))
    parser.add_argument("--list", action="store_true", help="print the configurations and stop")
    asked = parser.parse_args(arguments)
    wanted = [*serve_configurations(), *train_configurations()]
    wanted = [one for one in wanted if asked.only in (None, one.kind)]
    if asked.list:
        say("\n".join(map(str, wanted)))
        return 0
    subjects = {model: read_subject(model) for model in MODELS}
    within: list[bool] = []
    for number, one in enumerate(wanted, start=1):
        begun = time.monotonic()
        try:
            found = measure(one, subjects[one.model], asked.device, asked.layers)
        except PlannerError as error:
            say(f"{number}/{len(wanted)} {one}: skipped: {error}")
            continue
        append_record(asked.records, record(found))
        within.append(found.within(TOLERANCE))
        took = time.monotonic() - begun
        say(f"{number}/{len(wanted)} {one}: {verdict_line(found, tolerance=TOLERANCE)}, {took:.0f} s")
    say(f"{sum(within)} of {len(within)} within {TOLERANCE:.0%}; {len(wanted) - len(within)} skipped")
    return 2 if not within else 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
