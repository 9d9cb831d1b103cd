"""`vram-planner serve`: will it serve, and how many requests at once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.deployment_options import (
    DEFAULT_VERSION,
    ENGINE,
    GPU,
    WORKLOAD,
    EngineVersionOption,
    GpuMemoryOption,
    GpuOption,
    ModelArgument,
    allows_long_requests,
    find_card,
    gib_option,
    token_count,
)
from planner.cli.pasted import config_overrides, image_limit, memory_size, speculation
from planner.contract.lengths import Lengths, parse_lengths
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.plan import ServingPlan
from planner.engines.vllm.sharing import plan_instances
from planner.engines.vllm.tables.flags import check_versions, read_other_flags
from planner.errors import UsageError
from planner.model.load import load_model
from planner.model.positions import stretched_positions
from planner.report.rows import Format
from planner.report.serving import render_plan
from planner.units import parse_size

if TYPE_CHECKING:
    from planner.levers.advice import Advice


def serve(
    context: typer.Context,
    model: ModelArgument,
    gpu: GpuOption = None,
    gpu_memory: GpuMemoryOption = None,
    engine: Annotated[str, typer.Option(help="Serving engine.", rich_help_panel=GPU)] = "vllm",
    engine_version: EngineVersionOption = DEFAULT_VERSION,
    usage_context: Annotated[
        str, typer.Option(help="api-server (vllm serve) or llm-class (LLM(...)).", rich_help_panel=GPU)
    ] = "api-server",
    already_used: Annotated[
        str | None, typer.Option(help="Memory other processes hold on each card.", rich_help_panel=GPU)
    ] = None,
    safety_margin: Annotated[
        str | None, typer.Option(help="Kept free by lowering the fraction (2GiB).", rich_help_panel=GPU)
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "-tp", help="GPUs that cut every matrix.", rich_help_panel=ENGINE)
    ] = 1,
    pipeline_parallel_size: Annotated[
        int, typer.Option("--pipeline-parallel-size", "-pp", help="Pipeline stages.", rich_help_panel=ENGINE)
    ] = 1,
    data_parallel_size: Annotated[
        int, typer.Option("--data-parallel-size", "-dp", help="Engines beside each other.", rich_help_panel=ENGINE)
    ] = 1,
    enable_expert_parallel: Annotated[
        bool, typer.Option("--enable-expert-parallel", help="Deal experts out whole.", rich_help_panel=ENGINE)
    ] = False,
    decode_context_parallel_size: Annotated[
        int,
        typer.Option(
            "--decode-context-parallel-size", "-dcp", help="GPUs that share a sequence's cache.", rich_help_panel=ENGINE
        ),
    ] = 1,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16, float16, float32.", rich_help_panel=ENGINE)] = "auto",
    quantization: Annotated[
        str | None,
        typer.Option("--quantization", "-q", help="Plan the usual export of this name.", rich_help_panel=ENGINE),
    ] = None,
    group_size: Annotated[int | None, typer.Option(help="Group of the export.", rich_help_panel=ENGINE)] = None,
    quantize_lm_head: Annotated[
        bool, typer.Option("--quantize-lm-head", help="The export quantises the head too.", rich_help_panel=ENGINE)
    ] = False,
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, bfloat16, fp8, ...", rich_help_panel=ENGINE)] = "auto",
    block_size: Annotated[int | None, typer.Option(help="Tokens of a block.", rich_help_panel=ENGINE)] = None,
    max_model_len: Annotated[
        str | None,
        typer.Option(
            help="Longest request in tokens; 32K is 32768 and 32k 32000, as in vLLM; -1 fits.", rich_help_panel=ENGINE
        ),
    ] = None,
    allow_long_max_model_len: Annotated[
        bool,
        typer.Option(
            "--allow-long-max-model-len",
            help="As VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, which is read too.",
            rich_help_panel=ENGINE,
        ),
    ] = False,
    max_num_seqs: Annotated[int | None, typer.Option(help="Requests in a batch.", rich_help_panel=ENGINE)] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="Tokens in a batch.", rich_help_panel=ENGINE)
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Fraction of the card the engine takes.", rich_help_panel=ENGINE)
    ] = None,
    kv_cache_memory_bytes: Annotated[
        str | None, typer.Option(help="KV cache size, instead of the fraction.", rich_help_panel=ENGINE)
    ] = None,
    num_gpu_blocks_override: Annotated[
        int | None, typer.Option(help="Blocks, instead of what fits.", rich_help_panel=ENGINE)
    ] = None,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="No CUDA graphs.", rich_help_panel=ENGINE)
    ] = False,
    max_cudagraph_capture_size: Annotated[
        int | None, typer.Option(help="Largest batch captured as a graph.", rich_help_panel=ENGINE)
    ] = None,
    model_runner: Annotated[
        str, typer.Option(help="auto, v0, v1 or v2 (VLLM_USE_V1, VLLM_USE_V2_MODEL_RUNNER).", rich_help_panel=ENGINE)
    ] = "auto",
    enable_prefix_caching: Annotated[
        bool | None,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching", help="Keep prefixes.", rich_help_panel=ENGINE
        ),
    ] = None,
    enable_chunked_prefill: Annotated[
        bool | None,
        typer.Option(
            "--enable-chunked-prefill/--no-enable-chunked-prefill", help="Cut long prompts.", rich_help_panel=ENGINE
        ),
    ] = None,
    disable_hybrid_kv_cache_manager: Annotated[
        bool, typer.Option("--disable-hybrid-kv-cache-manager", help="Charge windows in full.", rich_help_panel=ENGINE)
    ] = False,
    sampler: Annotated[str, typer.Option(help="auto, pytorch, flashinfer or triton.", rich_help_panel=ENGINE)] = "auto",
    swap_space: Annotated[
        str | None, typer.Option(help="Host memory per GPU in GiB (V0).", rich_help_panel=ENGINE)
    ] = None,
    cpu_offload_gb: Annotated[
        str | None, typer.Option(help="Weights kept in host memory, GiB per GPU.", rich_help_panel=ENGINE)
    ] = None,
    enable_lora: Annotated[
        bool, typer.Option("--enable-lora", help="Reserve adapter slots.", rich_help_panel=ENGINE)
    ] = False,
    max_loras: Annotated[int, typer.Option(help="Adapter slots.", rich_help_panel=ENGINE)] = 1,
    max_lora_rank: Annotated[int, typer.Option(help="Rank of a slot.", rich_help_panel=ENGINE)] = 16,
    num_speculative_tokens: Annotated[
        int, typer.Option(help="Tokens the model's own draft layers propose.", rich_help_panel=ENGINE)
    ] = 0,
    speculative_config: Annotated[
        str | None, typer.Option(help="JSON with method and num_speculative_tokens.", rich_help_panel=ENGINE)
    ] = None,
    limit_mm_per_prompt: Annotated[
        str | None, typer.Option(help="Items of a prompt: image=1 or JSON.", rich_help_panel=ENGINE)
    ] = None,
    skip_mm_profiling: Annotated[
        bool, typer.Option("--skip-mm-profiling", help="Do not profile the encoder.", rich_help_panel=ENGINE)
    ] = False,
    language_model_only: Annotated[
        bool, typer.Option("--language-model-only", help="Leave the towers out.", rich_help_panel=ENGINE)
    ] = False,
    mm_encoder_tp_mode: Annotated[
        str, typer.Option(help="weights cuts the towers, data keeps them whole.", rich_help_panel=ENGINE)
    ] = "weights",
    mamba_ssm_cache_dtype: Annotated[
        str | None, typer.Option(help="Type of recurrent states.", rich_help_panel=ENGINE)
    ] = None,
    enable_sleep_mode: Annotated[
        bool, typer.Option("--enable-sleep-mode", help="Back weights up in host memory.", rich_help_panel=ENGINE)
    ] = False,
    instances: Annotated[int, typer.Option(help="Equal instances that share each card.", rich_help_panel=WORKLOAD)] = 1,
    concurrency: Annotated[int, typer.Option(help="Requests that must fit at once.", rich_help_panel=WORKLOAD)] = 1,
    input_len: Annotated[
        str | None, typer.Option(help="600, mean=600 or p50=600,p95=4000,p99=12000.", rich_help_panel=WORKLOAD)
    ] = None,
    output_len: Annotated[str | None, typer.Option(help="As --input-len.", rich_help_panel=WORKLOAD)] = None,
    attn_implementation: Annotated[
        str, typer.Option(help="For transformers: sdpa, flash_attention_2 or eager.", rich_help_panel=WORKLOAD)
    ] = "sdpa",
    cache_implementation: Annotated[
        str, typer.Option(help="For transformers: dynamic, static or none.", rich_help_panel=WORKLOAD)
    ] = "dynamic",
    logits_to_keep: Annotated[
        str | None, typer.Option(help="For transformers: all or last.", rich_help_panel=WORKLOAD)
    ] = None,
    assume_family: Annotated[
        str | None, typer.Option(help="Read an unknown model_type as this one.", rich_help_panel=WORKLOAD)
    ] = None,
    levers: Annotated[bool, typer.Option("--levers", help="Say what could be changed even if it fits.")] = False,
    keep: Annotated[
        str | None, typer.Option(help="Inputs no advice may touch: max-model-len,concurrency,quantization,...")
    ] = None,
    goal: Annotated[
        str | None, typer.Option(help="Solve for one: 'largest context at 16 users', 'largest batch', card, gpus.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    explain: Annotated[bool, typer.Option("--explain", help="Show the arithmetic.")] = False,
) -> None:
    """Plan a vLLM server: does MODEL fit, and how many requests does it hold.

    Every flag of `vllm serve` is accepted; those that do not touch memory are noted. Exit status: 0 fits or tight, 1
    does not fit, 2 wrong usage.

    Examples: vram-planner serve Qwen/Qwen3-8B --gpu 4090 --max-model-len 16K; vram-planner serve
    meta-llama/Llama-3.1-8B-Instruct --gpu H100 --input-len p50=600,p95=4000 --output-len p50=200,p95=800
    """
    if engine not in ("vllm", "transformers"):
        raise UsageError(f"--engine {engine[:40]!r} is not known here; expected vllm or transformers", field="engine")
    card, total = find_card(gpu, gpu_memory)
    if engine == "transformers":
        from planner.cli.plain import serve_plain

        serve_plain(
            load_model(model, assume_family=assume_family), card=card, total=total, dtype=dtype,
            quantization=quantization, group_size=group_size, batch_size=max_num_seqs or concurrency,
            max_model_len=token_count(max_model_len), input_len=input_len, output_len=output_len,
            attention=attn_implementation, cache=cache_implementation, logits=logits_to_keep, format=format.value,
            explain=explain,
        )  # fmt: skip
        return
    notes = read_other_flags(list(context.args), version=engine_version, own=_own_options(context))
    check_versions(_given_options(context), engine_version)
    loaded = load_model(model, assume_family=assume_family)
    overrides = config_overrides(list(context.args))
    if overrides:
        loaded.stretched = stretched_positions(overrides, loaded.longest_request)
    if speculative_config is not None:
        num_speculative_tokens, said = speculation(speculative_config)
        notes += said
    if enable_lora and max_loras < 1:
        raise UsageError(f"--max-loras is {max_loras}; expected 1 or more", field="max_loras")
    if swap_space is not None:
        notes += (_swap_note(engine_version),)
    deployment = Deployment(
        gpu=card,
        gpu_memory_bytes=total,
        engine_version=engine_version,
        usage_context=usage_context,
        already_used_bytes=memory_size(already_used, "--already-used"),
        safety_margin_bytes=memory_size(safety_margin, "--safety-margin"),
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        data_parallel_size=data_parallel_size,
        enable_expert_parallel=enable_expert_parallel,
        decode_context_parallel_size=decode_context_parallel_size,
        dtype=dtype,
        quantization=quantization,
        group_size=group_size,
        quantize_lm_head=quantize_lm_head,
        kv_cache_dtype=kv_cache_dtype,
        block_size=block_size,
        max_model_len=token_count(max_model_len),
        allow_long_max_model_len=allow_long_max_model_len or allows_long_requests(),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_memory_bytes=(
            parse_size(kv_cache_memory_bytes, option="--kv-cache-memory-bytes") if kv_cache_memory_bytes else None
        ),
        num_gpu_blocks_override=num_gpu_blocks_override,
        enforce_eager=enforce_eager,
        max_cudagraph_capture_size=max_cudagraph_capture_size,
        model_runner=model_runner,
        enable_prefix_caching=enable_prefix_caching,
        enable_chunked_prefill=enable_chunked_prefill,
        disable_hybrid_kv_cache_manager=disable_hybrid_kv_cache_manager,
        sampler=sampler,
        swap_space_bytes=gib_option(swap_space, "--swap-space"),
        cpu_offload_bytes=gib_option(cpu_offload_gb, "--cpu-offload-gb") or 0,
        enable_sleep_mode=enable_sleep_mode,
        max_loras=max_loras if enable_lora else 0,
        max_lora_rank=max_lora_rank,
        num_speculative_tokens=num_speculative_tokens,
        limit_images=image_limit(limit_mm_per_prompt),
        skip_mm_profiling=skip_mm_profiling,
        language_model_only=language_model_only,
        mm_encoder_tp_mode=mm_encoder_tp_mode,
        mamba_ssm_cache_dtype=mamba_ssm_cache_dtype,
        concurrency=concurrency,
    )
    inputs = parse_lengths(input_len, option="--input-len") if input_len else None
    outputs = parse_lengths(output_len, option="--output-len") if output_len else None
    plan = plan_instances(
        loaded, deployment, instances, input_lengths=inputs, output_lengths=outputs, notes=card.notes + notes
    )
    deployment = plan.resolved.asked if instances > 1 else deployment
    advice = None
    if levers or keep is not None or goal is not None or (plan.verdict != "fits" and format is not Format.CSV):
        advice = _advice(plan, deployment, inputs, outputs, keep=keep, goal=goal)
    show(plan, advice=advice, format=format, explain=explain)


def _advice(
    plan: ServingPlan,
    deployment: Deployment,
    inputs: Lengths | None,
    outputs: Lengths | None,
    *,
    keep: str | None,
    goal: str | None,
) -> Advice:
    from planner.levers.advice import advise, kept_inputs  # a plan that fits starts faster without
    from planner.levers.goal import parse_goal
    from planner.levers.question import ServingQuestion

    question = ServingQuestion(
        model=plan.model, deployment=deployment, input_lengths=inputs, output_lengths=outputs
    )  # fmt: skip
    kept = kept_inputs(part for part in (keep or "").split(",") if part.strip())
    return advise(question, plan, keep=kept, goal=parse_goal(goal) if goal is not None else None)


def show(plan: ServingPlan, *, advice: Advice | None = None, format: Format, explain: bool) -> None:
    """Print the plan and leave with its exit status."""
    colour = format is Format.TABLE and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    typer.echo(render_plan(plan, format=format.value, advice=advice, colour=colour, explain=explain))
    if plan.verdict == "does_not_fit":
        raise typer.Exit(1)


def _own_options(context: typer.Context) -> list[str]:
    return [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]


def _given_options(context: typer.Context) -> list[str]:
    """Our options that stand on the command line, in their long form."""
    return [
        name
        for parameter in context.command.params
        if parameter.name is not None
        and getattr(context.get_parameter_source(parameter.name), "name", "") == "COMMANDLINE"
        for name in parameter.opts
        if name.startswith("--")
    ]


def _swap_note(version: str) -> str:
    from planner.engines.vllm.tables.profile import vllm_profile

    state = vllm_profile(version).swap_space
    if state == "blocks":
        return "--swap-space holds CPU blocks: it takes host memory on every GPU, none on the card"
    if state == "ignored":
        return f"--swap-space has no effect in the V1 engine (vLLM {version})"
    return f"--swap-space is gone from vLLM {version}: leave it out of the command"
