"""A plan of plain transformers, for people and programs."""

from __future__ import annotations

import json

from planner.engines.transformers.plan import PlainPlan
from planner.report.rows import JSON_SCHEMA, Column, render_rows
from planner.units import format_size, gib


def plain_object(plan: PlainPlan) -> dict[str, object]:
    """The plan as one object; sizes in bytes."""
    run = plan.run
    return {
        "schema": JSON_SCHEMA,
        "model": {
            "id": plan.model.id, "parameters": plan.model.parameters, "architecture": plan.model.spec.architecture,
            "dtype": plan.dtype, "max_position_embeddings": plan.model.spec.max_position_embeddings,
        },
        "deployment": {
            "engine": "transformers", "gpu": run.gpu.name, "gpu_memory_bytes": run.gpu_memory_bytes,
            "dtype": plan.dtype, "quantization": run.quantization, "batch_size": run.batch_size,
            "input_len": run.input_len, "output_len": run.output_len, "attn_implementation": run.attention,
            "cache_implementation": run.cache, "logits_to_keep": run.logits,
        },
        "ranks": [{"rank": 0, "components": _components(plan)}],
        "peak": {"allocated_bytes": plan.allocated_bytes, "device_bytes": plan.device_bytes},
        "kv_cache": {
            "bytes_per_token": plan.sequence.bytes_per_token, "bytes_per_sequence": plan.sequence.total_bytes,
            "window_bytes_per_sequence": plan.sequence.window_bytes,
        },
        "largest_that_fits": {"input_len": plan.longest_input, "batch_size": plan.largest_batch},
        "load": {"host_bytes": plan.host_bytes},
        "verdict": plan.verdict,
        "shortfall_bytes": plan.shortfall_bytes,
        "notes": list(plan.notes),
    }  # fmt: skip


def _components(plan: PlainPlan) -> list[dict[str, object]]:
    return [
        {
            "name": part.name, "low": part.low, "best": part.best, "high": part.high, "evidence": part.evidence,
            "formula": part.formula, "source": part.source,
        }
        for part in plan.components
    ]  # fmt: skip


def render_plain(plan: PlainPlan, *, format: str, explain: bool = False) -> str:
    """The plan in a format; the table says the verdict first."""
    if format == "json":
        return json.dumps(plain_object(plan), indent=2)
    columns = [
        Column(field="name", heading="component"),
        *(Column(field=side, heading=f"{side} GiB", right=True, text=_gib) for side in ("low", "best", "high")),
        Column(field="evidence", heading="evidence"),
        *([Column(field="formula", heading="formula")] if explain else []),
    ]
    table = render_rows(_components(plan), columns=columns, format=format, query={"model": plan.model.id})
    if format != "table":
        return table
    run = plan.run
    lines = [
        f"{plan.verdict.replace('_', ' ')}: {plan.model.id} in plain transformers on {run.gpu.name}, {run.batch_size} x"
        f" {run.input_len:,} tokens" + (f" and {run.output_len:,} generated" if run.output_len else ", one forward"),
        f"peak allocated {format_size(plan.allocated_bytes)}, on the card {format_size(plan.device_bytes)} of"
        f" {format_size(run.gpu_memory_bytes)}",
        f"fits at this batch: {plan.longest_input:,} tokens of input; at this length: {plan.largest_batch:,} sequences",
        "",
        table,
        *(f"note: {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def _gib(value: object) -> str:
    return gib(value) if isinstance(value, int) else "-"
