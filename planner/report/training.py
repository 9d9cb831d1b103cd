"""A training plan for people, and as the JSON contract."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.contract.component import Component
from planner.contract.plan import VERDICTS
from planner.report.bar import Segment, bar
from planner.report.printer import Heading, Width, printed, table
from planner.report.rows import JSON_SCHEMA
from planner.report.verdict import coloured
from planner.training.components import bytes_per_parameter
from planner.training.largest import Largest
from planner.training.plan import TrainingPlan
from planner.training.stacks.megatron_shape import MegatronPeak
from planner.units import format_exact, format_size, gib

if TYPE_CHECKING:
    from planner.levers.advice import Advice

_LABELS = {
    "weights": ("weights", "W", 33),
    "optimizer": ("optimizer states", "O", 39),
    "ema": ("EMA copy", "E", 45),
    "other_models": ("other models", "M", 63),
    "gradients": ("gradients", "G", 70),
    "step_temporary": ("optimizer step", "S", 101),
    "loading": ("loading", "l", 107),
    "saved_activations": ("saved activations", "A", 208),
    "logits_and_loss": ("logits and loss", "L", 214),
    "working_set": ("working set", "B", 180),
    "workspace": ("cuBLAS workspace", "w", 244),
    "fragmentation": ("fragmentation", "f", 95),
    "context": ("context", "c", 240),
    "communicators": ("communicators", "m", 60),
    "generation_engine": ("generation engine", "e", 133),
}


def training_json(
    plan: TrainingPlan, largest: Largest | None = None, advice: Advice | None = None
) -> dict[str, object]:
    """The plan as the JSON contract: plain values, sizes in bytes.

    Args:
        advice: what to change; without it "levers" and "plans" are empty.
    """
    spec = plan.model.spec
    recipe = asdict(plan.recipe)
    recipe["lora_target_modules"] = list(plan.recipe.lora_target_modules)
    recipe["modules_to_save"] = list(plan.recipe.modules_to_save)
    recipe |= {"gpu": plan.gpu.name, "gpu_memory_bytes": plan.gpu_memory_bytes}
    return {
        "schema": JSON_SCHEMA,
        "model": {
            "id": plan.model.id,
            "parameters": plan.model.parameters,
            "active_parameters": plan.model.active_parameters,
            "architecture": spec.architecture,
            "dtype": spec.dtype,
            "max_position_embeddings": spec.max_position_embeddings,
        },
        "recipe": recipe,
        "trainable_parameters": plan.states.trained_numel,
        "bytes_per_parameter": bytes_per_parameter(plan.states, plan.recipe),
        "ranks": [{"rank": 0, "components": [asdict(part) for part in plan.components]}],
        "peak": {
            "allocated_bytes": plan.allocated_bytes,
            "phase": plan.peak_phase,
            **_memory_json(plan),
        },
        "needed": {"low_bytes": plan.needed_low, "best_bytes": plan.needed_best, "high_bytes": plan.needed_high},
        "phases": [asdict(phase) for phase in plan.phases],
        "host_bytes": plan.host_bytes,
        "largest_that_fits": None if largest is None else asdict(largest),
        "verdict": plan.verdict,
        "shortfall_bytes": plan.shortfall_bytes,
        **_levers_json(advice),
        "notes": list(plan.notes),
    }


def _memory_json(plan: TrainingPlan) -> dict[str, object]:
    """Reserved and device memory at best, and their bands; nothing where only the verdict was planned."""
    memory = plan.memory
    if memory is None:
        return {}
    bands = {"reserved": asdict(memory.reserved), "device": asdict(memory.device)}
    best = {"reserved_bytes": memory.reserved.best, "device_bytes": memory.device.best}
    return {**best, "bands": bands, "replayed": memory.derived}


def _memory_lines(plan: TrainingPlan) -> list[str]:
    """What a card must have, and what torch and nvidia-smi will show on this one."""
    memory = plan.memory
    if memory is None:
        return []
    how = "the step replayed through torch's allocator" if memory.derived else memory.source
    rows = [f"a card must have {gib(plan.needed_best)} to {gib(plan.needed_high)} GiB"]
    rows += [
        f"{label} {gib(band.best)} GiB ({gib(band.low)} to {gib(band.high)})"
        for label, band in (("torch will reserve", memory.reserved), ("nvidia-smi will show", memory.device))
    ]
    return [f"{'; '.join(rows)} [{how}]", ""]


def _levers_json(advice: Advice | None) -> dict[str, object]:
    if advice is None:
        return {"levers": [], "plans": []}
    from planner.report.levers import levers_json  # a run that fits need not pay for it

    return levers_json(advice)


def verdict_line(plan: TrainingPlan, *, colour: bool = False) -> str:
    """The answer in one line: verdict, model, cards, method, peak and phase."""
    return f"{coloured(plan.verdict) if colour else VERDICTS[plan.verdict]}: {verdict_text(plan)}"


def verdict_text(plan: TrainingPlan) -> str:
    """What follows the verdict's word in the first line."""
    recipe = plan.recipe
    shared = f", {recipe.sharding}" if recipe.num_gpus > 1 else ""
    short = f"; short by {format_size(plan.shortfall_bytes)} per GPU" if plan.shortfall_bytes else ""
    return (
        f"{plan.model.id}, {recipe.method} on {recipe.num_gpus} x {plan.gpu.name}"
        f" ({gib(plan.gpu_memory_bytes)} GiB){shared}: {gib(plan.allocated_bytes)} GiB allocated at the peak"
        f" ({plan.peak_phase}), {gib(plan.needed_best)} to {gib(plan.needed_high)} GiB needed of the card{short}"
    )


def training_table(
    plan: TrainingPlan,
    largest: Largest | None = None,
    *,
    advice: Advice | None = None,
    colour: bool = False,
    explain: bool = False,
    markdown: bool = False,
    width: Width = "terminal",
) -> str:
    """The plan for people: verdict, bar, recipe, breakdown per GPU, phases, the largest that fits, what to change."""
    lines = [verdict_line(plan, colour=colour and not markdown), ""]
    if not markdown:
        lines += [bar(_segments(plan), plan.gpu_memory_bytes, colour=colour), ""]
    lines += [recipe_line(plan), bytes_per_parameter(plan.states, plan.recipe), ""]
    lines += [_breakdown(plan, markdown=markdown, width=width), ""]
    lines += [_phases(plan, markdown=markdown, width=width), ""]
    lines += _memory_lines(plan)
    if plan.host_bytes:
        lines += [f"host memory: {format_size(plan.host_bytes)} per GPU", ""]
    if explain:
        lines += [*explanation(plan), ""]
    if largest is not None:
        lines += [*_largest_lines(plan, largest), ""]
    if advice is not None:
        from planner.report.levers import levers_table

        lines += [levers_table(advice, markdown=markdown, width=width), ""]
    lines += [f"note: {note}" for note in plan.notes]
    return printed(lines, None if markdown else width).rstrip()


def recipe_line(plan: TrainingPlan) -> str:
    """The precision recipe in words, defaults included."""
    recipe = plan.recipe
    parts = [f"{recipe.framework}: {recipe.dtype} weights"]
    if recipe.base_quantization != "none":
        double = " with double quantisation" if recipe.bnb_4bit_use_double_quant else ""
        parts.append(f"{recipe.base_quantization} base{double}")
    parts.append("no autocast" if recipe.autocast == "none" else f"{recipe.autocast} autocast")
    if recipe.master_weights == "fp32":
        parts.append("fp32 master weights")
    if recipe.grad_dtype:
        parts.append(f"{recipe.grad_dtype} gradients")
    if recipe.adapters:
        targets = ",".join(recipe.lora_target_modules) or "q_proj,v_proj"
        parts.append(f"rank {recipe.lora_rank} {recipe.adapter_dtype} adapters on {targets}")
    parts += [
        str(recipe.optim),
        f"batch {recipe.per_device_train_batch_size} x {recipe.gradient_accumulation_steps}"
        f" x {recipe.max_seq_length:,} tokens",
        f"{recipe.attn_implementation} attention",
        f"{'' if recipe.gradient_checkpointing else 'no '}gradient checkpointing",
        f"{recipe.loss} loss",
    ]
    return ", ".join(parts)


def _segments(plan: TrainingPlan) -> list[Segment]:
    sizes = {part.name: part.best for part in plan.components}
    return [Segment(label, sizes.get(name, 0), letter, tint) for name, (label, letter, tint) in _LABELS.items()]


def _breakdown(plan: TrainingPlan, *, markdown: bool, width: Width) -> str:
    rows: list[Sequence[str]] = [_row(part) for part in plan.components if part.high]
    rows.append(("= on the card", gib(plan.needed_low), gib(plan.needed_best), gib(plan.needed_high), ""))
    sides = [Heading(title=side, right=True) for side in ("low", "best", "high")]
    return table(
        rows, [Heading(title="GiB per GPU"), *sides, Heading(title="evidence")], markdown=markdown, width=width
    )


def _row(part: Component) -> Sequence[str]:
    label = _LABELS.get(part.name, (part.name,))[0]
    return (f"+ {label}", gib(part.low), gib(part.best), gib(part.high), part.evidence)


def _phases(plan: TrainingPlan, *, markdown: bool, width: Width) -> str:
    peak = plan.peak_phase
    engine = any(phase.engine_bytes for phase in plan.phases)
    rows = [
        (f"{phase.name}{' (peak)' if phase.name == peak else ''}", gib(phase.allocated_bytes))
        + ((gib(phase.engine_bytes), gib(phase.allocated_bytes + phase.engine_bytes)) if engine else ())
        for phase in plan.phases
    ]
    headings = [Heading(title="phase"), Heading(title="GiB allocated", right=True)]
    headings += [Heading(title="engine", right=True), Heading(title="both", right=True)] if engine else []
    return table(rows, headings, markdown=markdown, width=width)


def _largest_lines(plan: TrainingPlan, largest: Largest) -> list[str]:
    recipe = plan.recipe
    lines = ["largest that fits, each with the rest as asked:"]
    if largest.per_device_train_batch_size is None:
        lines.append("  batch: not even 1")
    else:
        lines.append(
            f"  --per-device-train-batch-size {largest.per_device_train_batch_size}"
            f" [{largest.verdicts['per_device_train_batch_size']}] (--gradient-accumulation-steps"
            f" {largest.gradient_accumulation_steps} keeps the effective batch)"
        )
    lines.append(_one_largest(largest, "max_seq_length"))
    if recipe.adapters:
        lines.append(_one_largest(largest, "lora_rank"))
    lines.append(f"{_one_largest(largest, 'num_gpus')} (the fewest)")
    return lines


def _one_largest(largest: Largest, name: str) -> str:
    value = getattr(largest, name)
    return f"  --{name.replace('_', '-')} {'none' if value is None else f'{value} [{largest.verdicts[name]}]'}"


def explanation(plan: TrainingPlan) -> list[str]:
    """Every component as on paper: formula, numbers put in, result, evidence, source."""
    lines = []
    for part in plan.components:
        lines += [
            f"{part.name} = {format_exact(part.best)} [{part.evidence}]",
            f"    {part.formula}",
            f"    source: {part.source}",
        ]
    return lines


def training_csv(plan: TrainingPlan) -> str:
    """The breakdown as CSV: a row for each component, sizes in bytes."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("rank", "component", "low_bytes", "best_bytes", "high_bytes", "evidence"))
    for part in plan.components:
        writer.writerow((0, part.name, part.low, part.best, part.high, part.evidence))
    return buffer.getvalue().rstrip("\n")


def render_training(
    plan: TrainingPlan,
    largest: Largest | None,
    *,
    format: str,
    advice: Advice | None = None,
    colour: bool = False,
    explain: bool = False,
    width: Width = "terminal",
    command: Sequence[str] = (),
) -> str:
    """The plan in the format asked for ("table", "json", "csv" or "markdown").

    Args:
        command: the words that run the recipe.
    """
    if format == "json":
        return json.dumps({**training_json(plan, largest, advice), "command": list(command)}, indent=1)
    if format == "csv":
        return training_csv(plan)
    if format == "html":
        from planner.report.html.results import training_page  # only a page pays for it

        return training_page(plan, largest, advice)
    text = training_table(
        plan, largest, advice=advice, colour=colour, explain=explain, markdown=format == "markdown", width=width
    )
    return f"{text}\n\n{' '.join(shlex.quote(word) for word in command)}" if command else text


def render_shape(peak: MegatronPeak, verdict: str, needed_bytes: int, card_bytes: int, *, format: str) -> str:
    """A Megatron-core shape's peak, as a table or as JSON."""
    parts = {name: size for name, size in asdict(peak).items() if name != "parameters"}
    if format == "json":
        found = {
            "schema": JSON_SCHEMA,
            "parameters": peak.parameters,
            "verdict": verdict,
            "peak": {"allocated_bytes": peak.allocated_bytes, "device_bytes": needed_bytes, **parts},
        }
        return json.dumps(found, indent=1)
    lines = [
        f"{VERDICTS.get(verdict, verdict)}: {peak.parameters:,} parameters, {gib(peak.allocated_bytes)} GiB allocated"
        f" at the peak, {gib(needed_bytes)} of {gib(card_bytes)} GiB in use",
        "",
    ]
    lines += [f"  {name:<12} {gib(size):>8} GiB" for name, size in parts.items()]
    return "\n".join(lines)
