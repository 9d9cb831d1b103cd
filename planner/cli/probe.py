"""Measure on this machine and compare with the plan.

Exit status: 0 within the tolerance, 1 not, 2 could not run. Needs pip install 'vram-planner[probe]'.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.words.deployment_options import (
    DEFAULT_VERSION,
    EngineVersionOption,
    GpuMemoryOption,
    GpuOption,
    find_card,
)
from planner.errors import UsageError
from planner.model.subject import read_subject
from planner.report.rows import Column, Format, render_rows
from planner.training.generation import Generation, generation_bytes
from planner.training.plain_loop import plain_loop_bytes, plain_loop_recipe
from planner.training.recipe import Recipe

if TYPE_CHECKING:
    from planner.probe.figures import Measurement

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A bundled name, a folder or config.json, or a Hub id; weights are random."),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cuda, cuda:1, rocm or cpu.")]
LayersOption = Annotated[int | None, typer.Option(help="Run about this many layers, and extrapolate from two depths.")]
ToleranceOption = Annotated[float, typer.Option(help="Largest relative error of the plan that passes.")]
RecordOption = Annotated[Path | None, typer.Option(help="Append a measured case to this file, for validate --cases.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Run even when the plan does not fit in what is free.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]


@app.command("serve")
def probe_serve(
    model: ModelArgument,
    batch_size: Annotated[int, typer.Option(help="Sequences at once.")] = 1,
    input_len: Annotated[int, typer.Option(help="Tokens of each prompt.")] = 512,
    output_len: Annotated[int, typer.Option(help="Tokens generated after it.")] = 16,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    attn_implementation: Annotated[str, typer.Option(help="eager, sdpa or flash_attention_2.")] = "sdpa",
    device: DeviceOption = "auto",
    layers: LayersOption = None,
    tolerance: ToleranceOption = 0.05,
    record: RecordOption = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Prefill and decode with random weights and a real cache in transformers, beside the plan of the same.

    Examples: vram-planner probe serve Qwen/Qwen2.5-0.5B --input-len 1024; vram-planner probe serve
    meta-llama/Llama-3.1-8B-Instruct --layers 4 --device cuda --record mine.jsonl
    """
    subject = read_subject(model)
    workload = Generation(
        dtype=dtype,
        attn_implementation=attn_implementation,
        batch_size=batch_size,
        input_len=input_len,
        output_len=output_len,
    )
    if dry_run:
        from planner.probe.session import dry_run as describe
        from planner.report.measured.probe import render_dry_run

        found = describe(subject, "serve", lambda cut: generation_bytes(cut, workload), layers)
        typer.echo(render_dry_run(found, format=format.value))
        return
    from planner.probe.session import measure_serve

    _finish(measure_serve(subject, workload, device=device, layers=layers, force=force), tolerance, record, format)


@app.command("train")
def probe_train(
    model: ModelArgument,
    method: Annotated[str, typer.Option(help="full, lora, qlora, dora, qdora or rslora.")] = "lora",
    lora_rank: Annotated[int | None, typer.Option("--lora-rank", "--lora-r", help="r.")] = None,
    lora_target_modules: Annotated[
        str | None, typer.Option(help="q_proj,v_proj, all-linear, or a regular expression.")
    ] = None,
    lora_dropout: Annotated[float | None, typer.Option(help="On the adapters' input.")] = None,
    adapter_dtype: Annotated[str | None, typer.Option(help="Type of the adapters (PEFT: float32).")] = None,
    dtype: Annotated[str | None, typer.Option(help="Stored weights: bfloat16, float16, float32.")] = None,
    autocast: Annotated[str | None, typer.Option(help="none, bf16 or fp16.")] = None,
    base_quantization: Annotated[str | None, typer.Option(help="none, nf4 or fp4.")] = None,
    bnb_4bit_use_double_quant: Annotated[
        bool,
        typer.Option("--bnb-4bit-use-double-quant/--no-bnb-4bit-use-double-quant", help="Scales quantised too."),
    ] = False,
    optim: Annotated[str | None, typer.Option(help="As the HF Trainer names them.")] = None,
    per_device_train_batch_size: Annotated[
        int, typer.Option("--per-device-train-batch-size", "-b", help="Sequences of a micro-batch.")
    ] = 1,
    gradient_accumulation_steps: Annotated[int, typer.Option(help="Micro-batches of a step.")] = 1,
    max_seq_length: Annotated[
        int, typer.Option("--max-seq-length", "--max-length", help="Tokens of a sequence.")
    ] = 512,
    gradient_checkpointing: Annotated[
        bool | None,
        typer.Option("--gradient-checkpointing/--no-gradient-checkpointing", help="Run layers again in backward."),
    ] = None,
    attn_implementation: Annotated[str | None, typer.Option(help="eager, sdpa or flash_attention_2.")] = None,
    padding: Annotated[bool, typer.Option("--padding/--no-padding", help="One sequence is padded.")] = False,
    device: DeviceOption = "auto",
    layers: LayersOption = None,
    tolerance: ToleranceOption = 0.05,
    record: RecordOption = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Real training steps with random weights in transformers and PEFT, beside the plan of the same.

    Examples: vram-planner probe train Qwen/Qwen2.5-0.5B --method lora --lora-target-modules all-linear; vram-planner
    probe train meta-llama/Llama-3.1-8B --method full --layers 4 --gradient-checkpointing --device cuda
    """
    subject = read_subject(model)
    targets = () if lora_target_modules is None else _targets(lora_target_modules)
    recipe = plain_loop_recipe(
        Recipe(
            method=method,
            lora_rank=lora_rank,
            lora_target_modules=targets,
            lora_dropout=lora_dropout,
            adapter_dtype=adapter_dtype,
            dtype=dtype,
            autocast=autocast,
            base_quantization=base_quantization,
            bnb_4bit_use_double_quant=bnb_4bit_use_double_quant,
            optim=optim,
            per_device_train_batch_size=per_device_train_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            max_seq_length=max_seq_length,
            gradient_checkpointing=gradient_checkpointing,
            attn_implementation=attn_implementation,
            padding=padding,
        )
    )
    if dry_run:
        from planner.probe.session import dry_run as describe
        from planner.report.measured.probe import render_dry_run

        found = describe(subject, "train", lambda cut: plain_loop_bytes(cut, recipe, exact_sizes=False), layers)
        typer.echo(render_dry_run(found, format=format.value))
        return
    from planner.probe.session import measure_train

    _finish(measure_train(subject, recipe, device=device, layers=layers, force=force), tolerance, record, format)


@app.command("card")
def probe_card(
    device: DeviceOption = "auto", tolerance: ToleranceOption = 0.05, format: FormatOption = Format.TABLE
) -> None:
    """Total memory and context of the card here, beside the table's.

    Example: vram-planner probe card
    """
    from planner.probe.card import measure_card

    _finish(measure_card(device), tolerance, None, format)


@app.command("engine")
def probe_engine(
    model: ModelArgument,
    log: Annotated[Path | None, typer.Option(help="Start-up log of a vLLM.")] = None,
    url: Annotated[str | None, typer.Option(help="Metrics of a vLLM on this machine: http://localhost:8000.")] = None,
    gpu: GpuOption = None,
    gpu_memory: GpuMemoryOption = None,
    engine_version: EngineVersionOption = DEFAULT_VERSION,
    tensor_parallel_size: Annotated[int, typer.Option("--tensor-parallel-size", "-tp", help="GPUs.")] = 1,
    quantization: Annotated[str | None, typer.Option("--quantization", "-q", help="As the server has it.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="As the server has it.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="As the server has it.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="As the server has it.")] = None,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="As the server has it.")] = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="As the server has it.")] = False,
    tolerance: ToleranceOption = 0.05,
    format: FormatOption = Format.TABLE,
) -> None:
    """What a running vLLM printed or says, beside the plan of the same start.

    A log states its own flags; with --url pass those of the server.

    Examples: vram-planner probe engine Qwen/Qwen3-8B --log vllm.log --gpu H100; vram-planner probe engine Qwen/Qwen3-8B
    --url http://localhost:8000 --gpu H100 --max-model-len 8192
    """
    if (log is None) == (url is None):
        raise UsageError("pass either --log FILE or --url http://localhost:8000", field="log")
    if log is not None:
        rows, notes = _log_rows(log, model, gpu, gpu_memory)
    else:
        from planner.engines.vllm.deployment import Deployment
        from planner.model.load import load_model
        from planner.probe.engine import compare_cache
        from planner.probe.metrics import read_metrics

        card, total = find_card(gpu, gpu_memory)
        asked = Deployment(
            gpu=card,
            gpu_memory_bytes=total,
            engine_version=engine_version,
            tensor_parallel_size=tensor_parallel_size,
            quantization=quantization,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            gpu_memory_utilization=gpu_memory_utilization,
            enforce_eager=enforce_eager,
        )
        _, rows = compare_cache(load_model(model), asked, read_metrics(str(url)))
        notes = []
    query: dict[str, object] = {"model": model, "log": str(log) if log else None, "url": url, "tolerance": tolerance}
    typer.echo(render_rows(rows, columns=_ENGINE_COLUMNS, format=format, query=query))
    if format is Format.TABLE:
        for note in notes:
            typer.echo(f"note: {note}")
    errors = [row["error"] for row in rows]
    if not errors:
        raise UsageError("nothing to compare: the server states no figure that the plan has", field="log")
    if any(not isinstance(error, float) or abs(error) > tolerance for error in errors):
        raise typer.Exit(1)


def _log_rows(
    log: Path, model: str, gpu: str | None, gpu_memory: str | None
) -> tuple[list[dict[str, object]], list[str]]:
    from planner.units import GIB, parse_size
    from planner.validation.log import read_log
    from planner.validation.scoring import score

    memory = parse_size(gpu_memory, option="--gpu-memory") / GIB if gpu_memory else None
    case = read_log(log).as_case(log.name, model, gpu=gpu, gpu_memory_gib=memory)
    rows, unscored = score([case])
    found: list[dict[str, object]] = [
        {
            "figure": row.component,
            "from": row.mode,
            "unit": row.unit,
            "planned": row.planned,
            "measured": row.measured,
            "error": row.error,
        }
        for row in rows
    ]
    return found, [f"{item.mode}: {item.reason}" for item in unscored]


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else "-"


def _percent(value: object) -> str:
    return f"{100 * value:+.2f}" if isinstance(value, float) else "-"


_ENGINE_COLUMNS = (
    Column(field="figure", heading="figure"),
    Column(field="from", heading="from"),
    Column(field="unit", heading="unit"),
    Column(field="planned", heading="planned", text=_number, right=True),
    Column(field="measured", heading="measured", text=_number, right=True),
    Column(field="error", heading="%", text=_percent, right=True),
)


def _targets(text: str) -> tuple[str, ...]:
    """Names separated by commas; a regular expression stays whole."""
    if any(mark in text for mark in "*|()[]\\^$"):
        return (text,)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _finish(found: Measurement, tolerance: float, record_file: Path | None, format: Format) -> None:
    from planner.report.measured.probe import render_measurement

    if not 0 < tolerance < 1:
        raise UsageError(f"--tolerance is {tolerance}; expected a fraction above 0 and below 1", field="tolerance")
    if record_file is not None:
        from planner.probe.record import append_record, record

        append_record(record_file, record(found))
    typer.echo(render_measurement(found, format=format.value, tolerance=tolerance))
    if not found.within(tolerance):
        raise typer.Exit(1)
