"""`vram-planner diagnose`: which failure an out-of-memory error is, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import workload_options as what
from planner.diagnosis.diagnosis import diagnose as diagnose_sources
from planner.diagnosis.length_tiers import (
    DEFAULT_MULTIPLE,
    DEFAULT_WASTE_PERCENT,
    Buckets,
    bucket_lengths,
    parse_lengths,
)
from planner.errors import SourceError, UsageError
from planner.report.diagnosis import render_diagnosis
from planner.report.rows import Format

_MOST_LENGTHS_BYTES = 256 << 20


def diagnose(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Logs, memory_summary dumps, memory snapshots or nvidia-smi output, alone or together; - is standard"
            " input, and the default when something is piped in.",
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N,N,...",
            help="Sequence lengths in tokens, as a file or as figures (512, 512x20): pad to what?",
        ),
    ] = None,
    max_waste: Annotated[
        float, typer.Option(metavar="PERCENT", help="The most padding, in per cent of all padded tokens.")
    ] = DEFAULT_WASTE_PERCENT,
    multiple: Annotated[
        int, typer.Option(metavar="TOKENS", help="Padded lengths are multiples of this.")
    ] = DEFAULT_MULTIPLE,
    model: what.ModelOption = None,
    gpu: what.GpuOption = None,
    gpu_memory: what.GpuMemoryOption = None,
    train: what.TrainOption = False,
    tensor_parallel_size: what.TensorParallelOption = None,
    pipeline_parallel_size: what.PipelineParallelOption = None,
    dtype: what.DtypeOption = None,
    engine_version: what.EngineVersionOption = None,
    max_model_len: what.MaxModelLenOption = None,
    max_num_seqs: what.MaxNumSeqsOption = None,
    max_num_batched_tokens: what.MaxNumBatchedTokensOption = None,
    gpu_memory_utilization: what.UtilizationOption = None,
    quantization: what.QuantizationOption = None,
    kv_cache_dtype: what.KvCacheDtypeOption = None,
    kv_cache_memory_bytes: what.KvCacheBytesOption = None,
    enforce_eager: what.EnforceEagerOption = None,
    already_used: what.AlreadyUsedOption = None,
    method: what.MethodOption = None,
    framework: what.FrameworkOption = None,
    per_device_train_batch_size: what.BatchOption = None,
    max_seq_length: what.SeqLengthOption = None,
    gradient_checkpointing: what.CheckpointingOption = None,
    attn_implementation: what.AttentionOption = None,
    lora_rank: what.LoraRankOption = None,
    optim: what.OptimOption = None,
    base_quantization: what.BaseQuantizationOption = None,
    num_gpus: what.NumGpusOption = None,
    sharding: what.ShardingOption = None,
    more: Annotated[
        bool, typer.Option("--more", help="After the first screen: figures, reasons, cautions, all remedies.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Read an out-of-memory error and say what happened, whose memory it was, and what to do first.

    Reads whole logs with colours, prefixes and several messages; --more adds figures, reasons and further remedies. It
    only looks: no command is run, nothing in a snapshot is executed. A pipe or device without an end is read for 2 GiB,
    or until no byte has come for 60 seconds. Exit status: 0 something was recognised (also: "this is no memory
    failure"), 2 nothing was, or the input cannot be read.

    With --gpu the card's capacity is known where the text prints none; with --model the plan of what ran stands beside
    each figure: planned, in the text, and the difference.

    Examples: vram-planner diagnose train.log; vram-planner diagnose oom.txt snapshot.pickle --format json;
    vram-planner diagnose serve.log --model Qwen/Qwen3-8B --gpu 4090 --max-model-len 32768;
    vram-planner diagnose train.log --model Qwen/Qwen3-8B --gpu 4090 --train --method qlora --max-seq-length 4096;
    vram-planner diagnose --lengths lengths.txt --max-waste 5
    """
    common = {
        "tensor_parallel_size": tensor_parallel_size, "pipeline_parallel_size": pipeline_parallel_size, "dtype": dtype,
    }  # fmt: skip
    served = {
        "engine_version": engine_version, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens, "gpu_memory_utilization": gpu_memory_utilization,
        "quantization": quantization, "kv_cache_dtype": kv_cache_dtype, "kv_cache_memory_bytes": kv_cache_memory_bytes,
        "enforce_eager": enforce_eager, "already_used": already_used,
    }  # fmt: skip
    trained = {
        "method": method, "framework": framework, "per_device_train_batch_size": per_device_train_batch_size,
        "max_seq_length": max_seq_length, "gradient_checkpointing": gradient_checkpointing,
        "attn_implementation": attn_implementation, "lora_rank": lora_rank, "optim": optim,
        "base_quantization": base_quantization, "num_gpus": num_gpus, "sharding": sharding,
    }  # fmt: skip
    what.check_workload(model, train, common, served, trained)
    sources = files or ([] if lengths is not None or sys.stdin is None or sys.stdin.isatty() else ["-"])
    if not sources and lengths is None:
        raise UsageError("give a file, or - for standard input, or --lengths", field="FILE")
    if sources.count("-") + (lengths == "-") > 1:
        raise UsageError("standard input can be read only once; give - once", field="FILE")
    capacity = _capacity(gpu, gpu_memory) if sources and (gpu or gpu_memory) else None
    names = (Path(name) if name != "-" else name for name in sources)
    diagnosis = diagnose_sources(*names, capacity_bytes=capacity) if sources else None
    if model is not None and diagnosis is not None:
        from planner.diagnosis.expectation.beside_plan import with_plan  # only with a plan: a tenth of a second

        options = {**common, **served, **trained}
        workload = what.workload_of(diagnosis, model, train=train, gpu=gpu, gpu_memory=gpu_memory, options=options)
        diagnosis = with_plan(diagnosis, workload)
    buckets = _buckets(lengths, max_waste, multiple) if lengths is not None else None
    typer.echo(render_diagnosis(diagnosis, format=format, buckets=buckets, more=more))


def _capacity(gpu: str | None, gpu_memory: str | None) -> int:
    """What the driver of the stated card reports."""
    from planner.cli.deployment_options import find_card  # only with a card: its imports cost a tenth

    return find_card(gpu, gpu_memory)[1]


def _buckets(lengths: str, max_waste: float, multiple: int) -> Buckets:
    """The tiers for lengths given as a file, as standard input or as figures."""
    return bucket_lengths(parse_lengths(_lengths_text(lengths)), max_waste_percent=max_waste, multiple=multiple)


def _lengths_text(lengths: str) -> str:
    if lengths == "-":
        return _read(sys.stdin.buffer.read(_MOST_LENGTHS_BYTES + 1), "standard input")
    path = Path(lengths)
    try:
        if not path.is_file():
            return lengths
        with path.open("rb") as stream:
            return _read(stream.read(_MOST_LENGTHS_BYTES + 1), lengths)
    except (OSError, ValueError) as error:
        raise SourceError(f"{lengths[:80]}: {getattr(error, 'strerror', None) or error}") from None


def _read(data: bytes, name: str) -> str:
    if len(data) > _MOST_LENGTHS_BYTES:
        raise SourceError(f"{name}: more than 256 MiB of lengths; give a sample")
    return data.decode("utf-8", "replace")
