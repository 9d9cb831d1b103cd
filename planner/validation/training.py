"""Measured fine-tunes, and how far the plan is from them.

A case is a row of `cases/training.jsonl`: what was run, where it was published, and the peaks that were read.
`score` plans every case and compares; `recipe_of` is how a row becomes a recipe.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.errors import PlannerError
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.model.load import load_model
from planner.model.model import Model
from planner.training.plan import plan_training
from planner.training.recipe import Recipe
from planner.units import GIB

# What stands before the first "-" of a case's id is the suite it comes from.
_FRAMEWORKS: Final = {
    "fms": "fms",
    "torchtune": "torchtune",
    "litgpt": "litgpt",
    "torchtitan": "torchtitan",
    "unsloth": "unsloth",
    "axolotl": "axolotl",
    "llamafactory": "llamafactory",
    "megatron": "megatron",
    "trl": "trl",
}
_LARGE_CARD: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One case: planned against measured, in bytes of allocated memory; or why it could not be planned."""

    id: str
    framework: str
    method: str
    config: str
    num_gpus: int
    measured_bytes: int
    planned_bytes: int | None
    phase: str
    refusal: str
    split: str

    @property
    def error(self) -> float | None:
        """Signed relative error."""
        return None if self.planned_bytes is None else self.planned_bytes / self.measured_bytes - 1


@cache
def cases() -> tuple[Mapping[str, Any], ...]:
    """The bundled rows."""
    text = files("planner.validation").joinpath("cases/training.jsonl").read_text("utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


def recipe_of(row: Mapping[str, Any]) -> Recipe:
    """The recipe that a case ran."""
    options, lora = row["options"], row.get("lora") or {}
    attention = str(row.get("attention") or "sdpa")
    suite = row["id"].split("-")[0]
    framework = _FRAMEWORKS.get(suite, "transformers")
    version = None
    if framework == "fms":
        version = "4.45" if "transformers 4.45" in row["framework"] else "4.48"
    targets = lora.get("targets") or ()
    sharding = _sharding(str(row.get("parallelism") or ""), row["num_gpus"])
    return Recipe(
        method=row["method"],
        framework=framework,
        transformers_version=version,
        framework_version=_release(framework, row["framework"]),
        bitsandbytes_version=_bitsandbytes(row["framework"]),
        torch_compile=options.get("torch_compile") or _compiled(row),
        dtype=options.get("dtype"),
        autocast=options.get("autocast"),
        optim=options.get("optim"),
        loss=options.get("loss"),
        base_quantization=options.get("base_quantization"),
        bnb_4bit_use_double_quant=bool(options.get("bnb_4bit_use_double_quant")),
        prepare_kbit=options.get("prepare_kbit"),
        adapter_dtype=options.get("adapter_dtype"),
        keep_outputs={"kept": True, "dropped": False}.get(str(options.get("outputs"))),
        optimizer_in_backward=bool(options.get("optimizer_in_backward")),
        per_device_train_batch_size=row["batch_per_device"],
        gradient_accumulation_steps=row.get("grad_accum") or 1,
        max_seq_length=row["seq_len"],
        gradient_checkpointing=bool(row["gradient_checkpointing"]),
        attn_implementation=(
            "eager" if "eager" in attention else "flash_attention_2" if attention.startswith("flash_") else "sdpa"
        ),
        lora_rank=lora.get("r"),
        lora_target_modules=(targets,) if isinstance(targets, str) else tuple(targets),
        lora_dropout=lora.get("dropout"),
        activation_offload=True if "activations" in str(row.get("offload")) else None,
        # vramcalc's bench trains with config.use_cache off (bench.py); the others are not said to
        use_cache=False if suite == "vramcalc" and row["method"] != "inference" else None,
        num_gpus=row["num_gpus"],
        sharding=sharding,
    )


def _release(stack: str, framework: str) -> str | None:
    """The release in a case's "torchtune 0.4 (Nov 2024)"; older ones went by the month, before the oldest rule.

    litgpt's rows of 2023 are of a commit before its first release; those of 2024 do not say which release they ran.
    """
    if stack == "litgpt":
        return "0.1" if framework.startswith("lit-gpt") else None
    if stack != "torchtune":
        return None
    found = re.match(r"torchtune (\d+\.\d+)", framework)
    return found[1] if found else "0.1"


def _compiled(row: Mapping[str, Any]) -> bool | None:
    """What a case's notes say where its options do not: torchtune's table compiles from that row on."""
    return True if "torch.compile of layers and loss" in str(row.get("notes")) else None


def _bitsandbytes(framework: str) -> str | None:
    """The release in a case's "(torch 2.1.0+cu121, bitsandbytes 0.41.1)"."""
    found = re.search(r"(?:bitsandbytes|bnb) (\d+\.\d+\.\d+)", framework)
    return found[1] if found else None


def _sharding(parallelism: str, num_gpus: int) -> str | None:
    if num_gpus == 1:
        return None
    for wanted in ("fsdp2", "fsdp", "zero3", "zero2", "zero1"):
        if wanted in parallelism.lower().replace("-", "").replace("fsdp1", "fsdp"):
            return wanted
    return "ddp"


def acceptance_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Rows of quality A with a config. A paged optimizer's states are outside torch's allocator, and not compared."""
    for row in rows:
        if row.get("quality") == "A" and row.get("config"):
            yield row


def score(rows: Iterable[Mapping[str, Any]] | None = None) -> list[Score]:
    """Plan every case (default: the bundled ones of quality A) and compare with what was measured."""
    models: dict[str, Model] = {}
    found = []
    for row in acceptance_rows(cases()) if rows is None else rows:
        measured = (row["measured"].get("peak_allocated_gib") or 0) * GIB
        if not measured:
            continue
        planned, phase, refusal = None, "", ""
        try:
            model = models.get(row["config"]) or models.setdefault(row["config"], load_model(row["config"]))
            plan = plan_training(model, recipe_of(row), card_of(row), gpu_memory_bytes=_LARGE_CARD, replays=False)
            planned, phase = plan.allocated_bytes, plan.peak_phase
        except PlannerError as error:
            refusal = str(error)
        found.append(
            Score(
                id=row["id"],
                framework=row["id"].split("-")[0],
                method=row["method"],
                config=row["config"],
                num_gpus=row["num_gpus"],
                measured_bytes=round(measured),
                planned_bytes=planned,
                phase=phase,
                refusal=refusal,
                split=row.get("quality", ""),
            )
        )
    return found


def card_of(row: Mapping[str, Any]) -> Gpu:
    """The card that a case ran on; one that holds anything where it is not known."""
    try:
        return find_gpu(str(row.get("gpu")).split("(")[0].replace("Tesla", "").strip(), memory_bytes=None)
    except PlannerError:
        return unnamed_gpu(_LARGE_CARD)


def summary(scores: Iterable[Score]) -> list[dict[str, object]]:
    """n, mean and worst absolute error, and the share within 8 %, by framework, method and one or several GPUs."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for one in scores:
        if one.error is not None:
            cards = "1" if one.num_gpus == 1 else ">1"
            groups.setdefault((one.framework, one.method, cards), []).append(one.error)
    return [
        {
            "framework": framework,
            "method": method,
            "gpus": cards,
            "n": len(errors),
            "mean_absolute_error": statistics.mean(map(abs, errors)),
            "worst": max(errors, key=abs),
            "within_8_percent": sum(abs(error) <= 0.08 for error in errors) / len(errors),
        }
        for (framework, method, cards), errors in sorted(groups.items())
    ]
