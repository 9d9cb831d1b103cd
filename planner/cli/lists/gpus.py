"""`vram-planner gpus`: the cards that can be planned for."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import Gpu, load_gpus
from planner.report.rows import Column, Format, plain, render_rows
from planner.units import gib


def gpus(
    text: Annotated[
        str,
        typer.Argument(metavar="[TEXT]", help="Only cards whose name, alias, maker or architecture has these words."),
    ] = "",
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List the GPUs of the bundled table, with the memory that the driver reports.

    Memory is what a program sees on native Linux, not the figure on the box. Evidence says how it is known: measured
    (read off a driver) or assumed (worked out from cards of the family, or recalled). JSON and CSV add sources.

    Examples: vram-planner gpus hopper; vram-planner gpus "rtx 40" --format json
    """
    found = [gpu for gpu in load_gpus() if _has_words(gpu, text)]
    if not found:
        typer.echo(f"no card has {text!r} in its name, aliases, maker or architecture", err=True)
    typer.echo(render_rows([_row(gpu) for gpu in found], columns=_COLUMNS, format=format, query={"text": text}))


def _has_words(gpu: Gpu, text: str) -> bool:
    searched = " ".join((gpu.id, gpu.name, *gpu.aliases, gpu.vendor, gpu.architecture)).casefold()
    return all(word in searched for word in text.casefold().split())


def _row(gpu: Gpu) -> dict[str, object]:
    context = cuda_context(gpu)
    return {
        "id": gpu.id,
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "compute_capability": gpu.compute_capability,
        "sm_count": gpu.sm_count,
        "marketing_gb": gpu.marketing_gb,
        "total_memory_bytes": gpu.reported_memory_bytes,
        "min_memory_bytes": gpu.min_memory_bytes,
        "max_memory_bytes": gpu.max_memory_bytes,
        "evidence": gpu.evidence if gpu.reported_memory_bytes is not None else None,
        "nvidia_smi_bytes": gpu.nvidia_smi_bytes,
        "context_bytes": context.best_bytes,
        "context_evidence": context.evidence,
        "bandwidth_bytes_per_second": gpu.bandwidth_bytes_per_second,
        "fp16_flops": gpu.fp16_flops,
        "fp8_flops": gpu.fp8_flops,
        "int8_ops": gpu.int8_ops,
        "fp4_flops": gpu.fp4_flops,
        "interconnect": gpu.interconnect,
        "unified_memory": gpu.unified_memory,
        "supports_bf16": gpu.supports_bf16,
        "supports_fp8": gpu.supports_fp8,
        "supports_fp4": gpu.supports_fp4,
        "memory_note": gpu.memory_note,
        "sources": gpu.sources,
        "confidence": gpu.confidence,
    }


def _gib(value: object) -> str:
    return gib(value) if isinstance(value, int) else "-"


def _giga(value: object) -> str:
    return f"{value / 10**9:,.0f}" if isinstance(value, int) else "-"


def _tera(value: object) -> str:
    return f"{value / 10**12:,.0f}" if isinstance(value, int) else "-"


_COLUMNS = (
    Column(field="id", heading="--gpu"),
    Column(field="name", heading="Card"),
    Column(field="total_memory_bytes", heading="Memory GiB", text=_gib, right=True),
    Column(field="marketing_gb", heading="Box GB", right=True),
    Column(field="evidence", heading="Evidence", text=plain),
    Column(field="bandwidth_bytes_per_second", heading="GB/s", text=_giga, right=True),
    Column(field="fp16_flops", heading="fp16 TFLOPS", text=_tera, right=True),
    Column(field="fp8_flops", heading="fp8 TFLOPS", text=_tera, right=True),
    Column(field="architecture", heading="Architecture"),
)
