"""The workload that `diagnose` compares with: some options of `serve` and of `train`, None where not given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.errors import UsageError
from planner.units import parse_size

if TYPE_CHECKING:
    from planner.diagnosis.expectation.workload import Workload
    from planner.diagnosis.result import Diagnosis

WHAT_RAN = "What ran (compares the plan with the text)"
SERVED = "The server (with --model, as for serve)"
TRAINED = "The fine-tune (with --model --train, as for train)"


def _served(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel=SERVED)


def _trained(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel=TRAINED)


ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="The model that ran, as serve and train take it.", rich_help_panel=WHAT_RAN),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", help="The card; without one, the text's capacity.", rich_help_panel=WHAT_RAN)
]
GpuMemoryOption = Annotated[
    str | None, typer.Option("--gpu-memory", help="What the driver reports (79.19GiB).", rich_help_panel=WHAT_RAN)
]
TrainOption = Annotated[
    bool, typer.Option("--train", help="It was a fine-tune, not a server.", rich_help_panel=WHAT_RAN)
]
TensorParallelOption = Annotated[
    int | None,
    typer.Option("--tensor-parallel-size", "-tp", help="GPUs that cut every matrix.", rich_help_panel=WHAT_RAN),
]
PipelineParallelOption = Annotated[
    int | None,
    typer.Option("--pipeline-parallel-size", "-pp", help="Pipeline stages.", rich_help_panel=WHAT_RAN),
]
DtypeOption = Annotated[str | None, typer.Option(help="bfloat16, float16, float32.", rich_help_panel=WHAT_RAN)]

EngineVersionOption = Annotated[str | None, _served("vLLM version, 0.4 to 0.33.")]
MaxModelLenOption = Annotated[str | None, _served("Longest request; without it, what the text says.")]
MaxNumSeqsOption = Annotated[int | None, _served("Requests in a batch.")]
MaxNumBatchedTokensOption = Annotated[int | None, _served("Tokens in a batch.")]
UtilizationOption = Annotated[float | None, _served("Fraction of the card; without it, what the text says.")]
QuantizationOption = Annotated[
    str | None,
    typer.Option("--quantization", "-q", help="The usual export of this name.", rich_help_panel=SERVED),
]
KvCacheDtypeOption = Annotated[str | None, _served("auto, bfloat16, fp8, ...")]
KvCacheBytesOption = Annotated[str | None, _served("KV cache size, instead of the fraction.")]
EnforceEagerOption = Annotated[bool | None, typer.Option("--enforce-eager", help="No CUDA graphs.",
                                                         rich_help_panel=SERVED)]  # fmt: skip
AlreadyUsedOption = Annotated[str | None, _served("Memory other processes held.")]

MethodOption = Annotated[str | None, _trained("full, lora, qlora, ...")]
FrameworkOption = Annotated[str | None, _trained("transformers, trl, unsloth, ...")]
BatchOption = Annotated[
    int | None,
    typer.Option("--per-device-train-batch-size", "-b", help="Sequences of a micro-batch.", rich_help_panel=TRAINED),
]
SeqLengthOption = Annotated[
    str | None, typer.Option("--max-seq-length", "--max-length", help="Tokens of a sequence.", rich_help_panel=TRAINED)
]
CheckpointingOption = Annotated[
    bool | None,
    typer.Option(
        "--gradient-checkpointing/--no-gradient-checkpointing",
        help="Run layers again in backward.",
        rich_help_panel=TRAINED,
    ),
]
AttentionOption = Annotated[str | None, _trained("eager, sdpa or flash_attention_2.")]
LoraRankOption = Annotated[int | None, typer.Option("--lora-rank", "--lora-r", help="r.", rich_help_panel=TRAINED)]
OptimOption = Annotated[str | None, _trained("adamw_torch, adamw_bnb_8bit, ...")]
BaseQuantizationOption = Annotated[str | None, _trained("none, nf4, int8, ...")]
NumGpusOption = Annotated[int | None, _trained("All GPUs of the run.")]
ShardingOption = Annotated[str | None, _trained("ddp, zero1, zero2, zero3, fsdp, ...")]


def check_workload(
    model: str | None, train: bool, common: dict[str, Any], served: dict[str, Any], trained: dict[str, Any]
) -> None:
    """Refuses options that would be silently without effect.

    Raises:
        UsageError: an option of the workload without --model, or of the other kind of workload; names it.
    """
    given = [name for group in (common, served, trained) for name, value in group.items() if value is not None]
    if model is None and (given or train):
        raise UsageError(f"--{_dashed(given[0] if given else 'train')} says what ran: give --model too", field="model")
    wrong = [name for name, value in (served if train else trained).items() if value is not None]
    if wrong:
        kind = "a server: leave --train out" if train else "a fine-tune: give --train"
        raise UsageError(f"--{_dashed(wrong[0])} is an option of {kind}", field=wrong[0])


def workload_of(
    diagnosis: Diagnosis,
    model: str,
    *,
    train: bool,
    gpu: str | None,
    gpu_memory: str | None,
    options: dict[str, Any],
) -> Workload:
    """The workload as a question that can be planned; without a card, that of the text.

    Args:
        options: names of `Deployment` or `Recipe` to values as on the command line; None is the default.

    Raises:
        PlannerError: an unknown model or card, a size that is none, no card anywhere.
    """
    from planner.cli.deployment_options import find_card, token_count
    from planner.diagnosis.expectation.workload import ServingWorkload, TrainingWorkload, on_card_of
    from planner.hardware.gpus import unnamed_gpu
    from planner.model.load import load_model

    printed = None if gpu or gpu_memory else _capacity(diagnosis)
    card, total = (unnamed_gpu(printed), printed) if printed else find_card(gpu, gpu_memory)
    loaded = load_model(model)
    given = {name: value for name, value in options.items() if value is not None}
    workload: Workload
    if train:
        from planner.levers.training import TrainingQuestion
        from planner.training.recipe import Recipe

        if "max_seq_length" in given:
            given["max_seq_length"] = token_count(given["max_seq_length"], "--max-seq-length")
        question = TrainingQuestion(model=loaded, recipe=Recipe(**given), gpu=card, gpu_memory_bytes=total)
        workload = TrainingWorkload(question=question)
    else:
        from planner.contract.engine import find_engine
        from planner.engines.vllm.deployment import Deployment
        from planner.levers.question import ServingQuestion

        deployment = Deployment(gpu=card, gpu_memory_bytes=total, **_deployed(given))
        workload = ServingWorkload(
            question=ServingQuestion(engine=find_engine("vllm"), model=loaded, deployment=deployment)
        )
    return on_card_of(workload, printed) if printed else workload


def _deployed(given: dict[str, Any]) -> dict[str, Any]:
    from planner.cli.deployment_options import token_count
    from planner.cli.pasted import memory_size

    found = dict(given)
    if "max_model_len" in found:
        found["max_model_len"] = token_count(found["max_model_len"])
    if "kv_cache_memory_bytes" in found:
        found["kv_cache_memory_bytes"] = parse_size(found["kv_cache_memory_bytes"], option="--kv-cache-memory-bytes")
    if "already_used" in found:
        found["already_used_bytes"] = memory_size(found.pop("already_used"), "--already-used")
    return found


def _capacity(diagnosis: Diagnosis) -> int | None:
    """The device memory that the text prints, None if it prints none or several."""
    found = {f.message.bytes_of("total_bytes") for f in diagnosis.findings if f.failure != "host_memory"} - {None}
    return found.pop() if len(found) == 1 else None


def _dashed(name: str) -> str:
    return name.replace("_", "-")
