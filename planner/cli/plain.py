"""`vram-planner serve --engine transformers`: a forward pass, or generate, without an engine."""

from __future__ import annotations

import typer

from planner.engines.transformers.plan import PlainRun, plan_plain
from planner.errors import UsageError
from planner.hardware.gpus import Gpu
from planner.model.model import Model
from planner.report.plain import render_plain

_DEFAULT_INPUT = 2048


def serve_plain(
    model: Model,
    *,
    card: Gpu,
    total: int,
    dtype: str,
    quantization: str | None,
    group_size: int | None,
    batch_size: int,
    max_model_len: int | None,
    input_len: str | None,
    output_len: str | None,
    attention: str,
    cache: str,
    logits: str | None,
    format: str,
    explain: bool,
) -> None:
    """Plan, print, and leave with the plan's exit status."""
    generated = _tokens(output_len, "--output-len") or 0
    asked = _tokens(input_len, "--input-len")
    if asked is None:
        asked = max(1, max_model_len - generated) if max_model_len is not None and max_model_len > 0 else _DEFAULT_INPUT
    run = PlainRun(
        gpu=card,
        gpu_memory_bytes=total,
        dtype={"half": "float16", "float": "float32"}.get(dtype, dtype),
        quantization=quantization,
        group_size=group_size,
        batch_size=batch_size,
        input_len=asked,
        output_len=generated,
        attention=attention,
        cache=cache,
        logits=logits or ("last" if generated else "all"),
    )
    plan = plan_plain(model, run)
    typer.echo(render_plain(plan, format=format, explain=explain))
    if plan.verdict == "does_not_fit":
        raise typer.Exit(1)


def _tokens(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or len(text) > 9:
        raise UsageError(
            f"{option} is {text[:40]!r}; --engine transformers takes one number of tokens", field=option.strip("-")
        )
    return int(text)
