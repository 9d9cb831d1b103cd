"""24 fine-tunes on one GPU that a plain loop over text does not cover, phase by phase, beside their plans.

    python benchmarks/phases_on_gpu.py --records phases.jsonl [--list] [--plans]

Eager attention in fp16 and bf16 (4), a vision tower trained, frozen inside the graph and checkpointed (6), GRPO's
rollout, log-probabilities and update (6: two models, three phases), masked LM (4), DeepSpeed's stages with and without
offload (4). Weights are random and nothing is downloaded. `--plans` prints what is planned and needs no GPU; the rest
needs torch with CUDA, transformers, peft, and deepspeed for its four.

Not run yet: no GPU was at hand when it was written.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner import Recipe
from planner.hardware.gpus import find_gpu
from planner.model.shallow.subject import Subject, read_subject
from planner.probe.build import build_model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.vision.images import picture, read_size

_STEPS = 2
_IMAGE = "896x1120"


@dataclass(frozen=True)
class Configuration:
    """One fine-tune: `phase` is the phase of the plan that its peak stands for ("": the step's)."""

    kind: str
    model: str
    recipe: Recipe
    phase: str = ""

    def __str__(self) -> str:
        recipe = self.recipe
        parts = (self.kind, self.model, recipe.method, recipe.dtype, f"{recipe.sequences} x {recipe.max_seq_length}")
        return " ".join(str(part) for part in (*parts, self.phase) if part)


def configurations() -> Iterator[Configuration]:
    """All 24."""
    for model in ("Qwen/Qwen2.5-0.5B", "HuggingFaceTB/SmolLM2-135M"):
        for dtype in ("float16", "bfloat16"):
            yield Configuration("eager", model, _recipe(dtype=dtype, attn_implementation="eager", max_seq_length=2048))
    for model in ("Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct"):
        for method, frozen, checkpoints in (("full", False, False), ("full", False, True), ("lora", True, True)):
            yield Configuration(
                "tower",
                model,
                _recipe(
                    method=method,
                    images_per_sample=1,
                    image_size=_IMAGE,
                    freeze_vision_tower=frozen,
                    gradient_checkpointing=checkpoints,
                    max_seq_length=2048,
                ),
            )
    for model in ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B"):
        for phase in ("rollout", "log-probabilities", "loss backward"):
            recipe = _recipe(
                objective="grpo",
                vllm_mode="none",
                per_device_train_batch_size=4,
                max_seq_length=1536,
                max_completion_length=1024,
                gradient_checkpointing=True,
            )
            yield Configuration("grpo", model, recipe, phase)
    for dtype, (rows, length) in ((d, s) for d in ("float32", "bfloat16") for s in ((8, 128), (32, 512))):
        recipe = _recipe(
            objective="mlm", method="full", dtype=dtype, max_seq_length=length, per_device_train_batch_size=rows
        )
        yield Configuration("mlm", "google-bert/bert-base-uncased", recipe)
    for stage in ("zero2", "zero3"):
        for offload in (False, True):
            recipe = _recipe(
                method="full",
                sharding=stage,
                num_gpus=2,
                offload_optimizer=offload,
                gradient_checkpointing=True,
                max_seq_length=1024,
            )
            yield Configuration("deepspeed", "Qwen/Qwen2.5-0.5B", recipe)


def _recipe(**options: Any) -> Recipe:
    usual: dict[str, Any] = {
        "method": "lora",
        "dtype": "bfloat16",
        "autocast": "none",
        "padding": False,
        "lora_target_modules": ("q_proj", "v_proj"),
        "loss": "hf",
        "lora_dropout": 0.0,
    }
    return Recipe(**{**usual, **options})


def planned(one: Configuration, subject: Subject, gpu: str) -> TrainingPlan:
    """The plan of a configuration."""
    return plan_training(subject.at_depth(len(subject.model.spec.layers))[0], one.recipe, find_gpu(gpu))


def planned_bytes(one: Configuration, plan: TrainingPlan) -> int:
    """Of the phase that is measured, or of the whole step."""
    phases = {phase.name: phase.allocated_bytes for phase in plan.phases}
    return phases[one.phase] if one.phase else plan.allocated_bytes


def measured_bytes(one: Configuration, subject: Subject) -> int:
    """`max_memory_allocated` of two steps, or of the phase."""
    import torch

    recipe = one.recipe
    values = subject.at_depth(len(subject.model.spec.layers))[1]
    model = build_model(
        values,
        dtype=recipe.dtype or "bfloat16",
        attn_implementation=recipe.attn_implementation or "sdpa",
        device="cuda",
    )
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if recipe.adapters:
        import peft

        model = peft.get_peft_model(
            model, peft.LoraConfig(r=8, target_modules=list(recipe.lora_target_modules), lora_dropout=0.0)
        )
    if recipe.freeze_vision_tower and recipe.method == "full":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("visual" not in name)
    engine = _deepspeed(model, recipe) if one.kind == "deepspeed" else None
    optimizer = None if engine else torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    batch = _batch(one, model)
    for _ in range(_STEPS):
        torch.cuda.reset_peak_memory_stats()
        _run(one, engine or model, optimizer, batch)
    peak = int(torch.cuda.max_memory_allocated())
    del model, engine, optimizer, batch
    gc.collect()
    torch.cuda.empty_cache()
    return peak


def _run(one: Configuration, model: Any, optimizer: Any, batch: dict[str, Any]) -> None:
    import torch

    kept = one.recipe.max_completion_length
    if one.phase == "rollout":
        prompt = {name: batch[name][:, : one.recipe.max_seq_length - (kept or 0)] for name in ("input_ids",)}
        with torch.no_grad():
            model.generate(**prompt, max_new_tokens=kept, min_new_tokens=kept, do_sample=False)
        return
    if one.phase == "log-probabilities":
        with torch.no_grad():
            _log_probs(model(input_ids=batch["input_ids"], logits_to_keep=kept).logits, batch["input_ids"], kept or 0)
        return
    if one.kind == "grpo":
        logits = model(input_ids=batch["input_ids"], logits_to_keep=kept).logits
        loss = -_log_probs(logits, batch["input_ids"], kept or 0).mean()
    else:
        loss = model(**batch).loss
    if optimizer is None:
        model.backward(loss)
        model.step()
        return
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _log_probs(logits: Any, ids: Any, kept: int) -> Any:
    """TRL's: logits of a slice, divided in place by the temperature, row by row."""
    import torch

    part = logits[:, :-1]
    part.div_(0.9)
    chosen = ids[:, -kept + 1 :]
    rows = [
        row.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1) for row, index in zip(part, chosen, strict=True)
    ]
    return torch.stack(rows)


def _batch(one: Configuration, model: Any) -> dict[str, Any]:
    import torch

    recipe, config = one.recipe, model.config
    vocabulary = getattr(config, "vocab_size", None) or config.text_config.vocab_size
    ids = torch.randint(0, min(vocabulary, 1000), (recipe.sequences, recipe.max_seq_length), device="cuda")
    found: dict[str, Any] = {"input_ids": ids, "labels": ids.clone()}
    if recipe.images_per_sample:
        width, height = read_size(_IMAGE)
        shown = picture("qwen2_vl", width, height)
        ids[:, : shown.tokens] = config.image_token_id
        grid = [1, height // 14, width // 14]
        found["pixel_values"] = torch.randn(shown.patches, 1176, device="cuda")
        found["image_grid_thw"] = torch.tensor([grid], device="cuda")
    return found


def _deepspeed(model: Any, recipe: Recipe) -> Any:
    import deepspeed

    zero: dict[str, Any] = {"stage": int((recipe.sharding or "zero2")[-1]), "reduce_bucket_size": 500_000_000}
    if recipe.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    settings = {
        "train_micro_batch_size_per_gpu": recipe.per_device_train_batch_size,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)[0]


def main(arguments: list[str]) -> int:
    """Run, plan or list them all; 0 when every one that ran was within 5%, 1 when not, 2 when none ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Path("phases.jsonl"))
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--plans", action="store_true")
    asked = parser.parse_args(arguments)
    wanted = list(configurations())
    if asked.list:
        print("\n".join(map(str, wanted)))
        return 0
    subjects = {name: read_subject(name) for name in dict.fromkeys(one.model for one in wanted)}
    near: list[bool] = []
    for one in wanted:
        expected = planned_bytes(one, planned(one, subjects[one.model], asked.gpu))
        if asked.plans:
            print(f"{one}: {expected:,} B planned")
            continue
        try:
            found = measured_bytes(one, subjects[one.model])
        except (ImportError, RuntimeError) as error:
            print(f"{one}: skipped: {error}")
            continue
        near.append(abs(expected / found - 1) <= 0.05)
        row = {
            "kind": one.kind,
            "model": one.model,
            "phase": one.phase,
            "recipe": asdict(one.recipe),
            "planned_bytes": expected,
            "measured_bytes": found,
        }
        with asked.records.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{one}: {found:,} B, planned {expected / found - 1:+.1%}")
    return 0 if asked.plans or (near and all(near)) else 2 if not near else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
