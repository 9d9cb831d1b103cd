"""`vram-planner train`: does the fine-tune fit, and how large can it be."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from planner.cli.deployment_options import GPU, GpuMemoryOption, GpuOption, ModelArgument, find_card, token_count
from planner.model.load import load_model
from planner.report.rows import Format
from planner.report.training import render_training
from planner.training.largest import largest_that_fits
from planner.training.plan import plan_training
from planner.training.recipe import Recipe

METHOD = "What is trained"
PRECISION = "Precision"
BATCH = "Batch and activations"
MANY = "Many GPUs"


def train(
    model: ModelArgument,
    gpu: GpuOption = None,
    gpu_memory: GpuMemoryOption = None,
    method: Annotated[
        str,
        typer.Option(
            help="full, lora, qlora, dora, qdora, rslora, freeze, prompt, galore or inference.", rich_help_panel=METHOD
        ),
    ] = "lora",
    objective: Annotated[
        str, typer.Option(help="sft, dpo, kto, orpo, reward, ppo or grpo.", rich_help_panel=METHOD)
    ] = "sft",
    framework: Annotated[
        str,
        typer.Option(
            help="transformers, trl, torchtune, litgpt, unsloth, axolotl, llamafactory, megatron, torchtitan or fms:"
            " sets the stack's own defaults and kernels.",
            rich_help_panel=METHOD,
        ),
    ] = "transformers",
    transformers_version: Annotated[
        str | None, typer.Option(help="Release of transformers below the stack (4.48).", rich_help_panel=METHOD)
    ] = None,
    framework_version: Annotated[
        str | None,
        typer.Option(help="Release of a stack with modules of its own (torchtune 0.4).", rich_help_panel=METHOD),
    ] = None,
    lora_rank: Annotated[int | None, typer.Option("--lora-rank", "--lora-r", help="r.", rich_help_panel=METHOD)] = None,
    lora_target_modules: Annotated[
        str | None,
        typer.Option(help="q_proj,v_proj, all-linear, or a regular expression.", rich_help_panel=METHOD),
    ] = None,
    lora_dropout: Annotated[float | None, typer.Option(help="On the adapters' input.", rich_help_panel=METHOD)] = None,
    adapter_dtype: Annotated[
        str | None, typer.Option(help="Type of the adapters (PEFT: float32).", rich_help_panel=METHOD)
    ] = None,
    modules_to_save: Annotated[
        str | None, typer.Option(help="Modules trained in full beside the adapters.", rich_help_panel=METHOD)
    ] = None,
    freeze_layers: Annotated[
        int | None, typer.Option(help="Layers frozen from the bottom (method freeze).", rich_help_panel=METHOD)
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(help="Virtual tokens (method prompt).", rich_help_panel=METHOD)] = 20,
    optim: Annotated[
        str | None,
        typer.Option(help="As the HF Trainer names them: adamw_torch, adamw_bnb_8bit, ...", rich_help_panel=METHOD),
    ] = None,
    optimizer_rank: Annotated[int, typer.Option(help="Rank of GaLore and APOLLO.", rich_help_panel=METHOD)] = 128,
    optimizer_in_backward: Annotated[
        bool, typer.Option("--optimizer-in-backward", help="Gradients are used at once.", rich_help_panel=METHOD)
    ] = False,
    keep_gradients: Annotated[
        bool | None,
        typer.Option(
            "--keep-gradients/--drop-gradients",
            help="Gradients of the step before lie beside the forward.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    ema: Annotated[bool, typer.Option("--ema", help="Keep an averaged copy.", rich_help_panel=METHOD)] = False,
    dtype: Annotated[
        str | None, typer.Option(help="Stored weights: bfloat16, float16, float32.", rich_help_panel=PRECISION)
    ] = None,
    autocast: Annotated[str | None, typer.Option(help="none, bf16 or fp16.", rich_help_panel=PRECISION)] = None,
    master_weights: Annotated[
        str | None, typer.Option(help="none or fp32: a copy in the optimizer.", rich_help_panel=PRECISION)
    ] = None,
    grad_dtype: Annotated[
        str | None, typer.Option(help="Gradients that are kept: fp32, bf16 or fp16.", rich_help_panel=PRECISION)
    ] = None,
    base_quantization: Annotated[
        str | None,
        typer.Option(help="none, nf4, fp4, int8, gptq, awq or torchao-nf4.", rich_help_panel=PRECISION),
    ] = None,
    bnb_4bit_use_double_quant: Annotated[
        bool,
        typer.Option(
            "--bnb-4bit-use-double-quant/--no-bnb-4bit-use-double-quant",
            help="Scales quantised too.",
            rich_help_panel=PRECISION,
        ),
    ] = False,
    prepare_kbit: Annotated[
        bool | None,
        typer.Option(
            "--prepare-kbit/--no-prepare-kbit",
            help="PEFT's prepare_model_for_kbit_training (norms and embeddings in fp32).",
            rich_help_panel=PRECISION,
        ),
    ] = None,
    per_device_train_batch_size: Annotated[
        int,
        typer.Option("--per-device-train-batch-size", "-b", help="Sequences of a micro-batch.", rich_help_panel=BATCH),
    ] = 1,
    gradient_accumulation_steps: Annotated[
        int, typer.Option(help="Micro-batches of a step.", rich_help_panel=BATCH)
    ] = 1,
    max_seq_length: Annotated[
        str,
        typer.Option(
            "--max-seq-length", "--max-length", help="Tokens of a sequence; 4K is 4096.", rich_help_panel=BATCH
        ),
    ] = "2048",
    gradient_checkpointing: Annotated[
        bool | None,
        typer.Option(
            "--gradient-checkpointing/--no-gradient-checkpointing",
            help="Run layers again in backward.",
            rich_help_panel=BATCH,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(help="Layers of one checkpointed segment.", rich_help_panel=BATCH)
    ] = 1,
    activation_offload: Annotated[
        bool | None,
        typer.Option(
            "--activation-offload/--no-activation-offload",
            help="Checkpointed inputs in host memory.",
            rich_help_panel=BATCH,
        ),
    ] = None,
    attn_implementation: Annotated[
        str | None, typer.Option(help="eager, sdpa or flash_attention_2.", rich_help_panel=BATCH)
    ] = None,
    padding: Annotated[
        bool | None,
        typer.Option("--padding/--no-padding", help="Batches are padded: SDPA gets a mask.", rich_help_panel=BATCH),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="hf, in-place, chunked, liger or cce.", rich_help_panel=BATCH)
    ] = None,
    keep_outputs: Annotated[
        bool | None,
        typer.Option(
            "--keep-outputs/--drop-outputs", help="The outputs object lives through backward.", rich_help_panel=BATCH
        ),
    ] = None,
    logits_to_keep: Annotated[
        int | None, typer.Option(help="Last positions whose logits are made.", rich_help_panel=BATCH)
    ] = None,
    use_cache: Annotated[
        bool | None, typer.Option("--use-cache/--no-use-cache", help="Keep keys and values.", rich_help_panel=BATCH)
    ] = None,
    torch_compile: Annotated[
        bool | None,
        typer.Option("--torch-compile/--no-torch-compile", help="Blocks and loss compiled.", rich_help_panel=BATCH),
    ] = None,
    num_gpus: Annotated[int, typer.Option(help="All GPUs of the run.", rich_help_panel=MANY)] = 1,
    sharding: Annotated[
        str | None, typer.Option(help="ddp, zero1, zero2, zero3, fsdp, fsdp2 or hsdp.", rich_help_panel=MANY)
    ] = None,
    shard_group: Annotated[int | None, typer.Option(help="Ranks of a group (hsdp).", rich_help_panel=MANY)] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "-tp", help="GPUs that cut every matrix.", rich_help_panel=MANY)
    ] = 1,
    pipeline_parallel_size: Annotated[
        int, typer.Option("--pipeline-parallel-size", "-pp", help="Pipeline stages.", rich_help_panel=MANY)
    ] = 1,
    context_parallel_size: Annotated[
        int, typer.Option("--context-parallel-size", "-cp", help="GPUs that share a sequence.", rich_help_panel=MANY)
    ] = 1,
    expert_parallel_size: Annotated[
        int, typer.Option("--expert-parallel-size", "-ep", help="GPUs that deal out experts.", rich_help_panel=MANY)
    ] = 1,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="Norms on parts of the sequence.", rich_help_panel=MANY)
    ] = False,
    offload_optimizer: Annotated[
        bool, typer.Option("--offload-optimizer", help="Optimizer in host memory.", rich_help_panel=MANY)
    ] = False,
    offload_parameters: Annotated[
        bool, typer.Option("--offload-parameters", help="Weights in host memory.", rich_help_panel=MANY)
    ] = False,
    generation_share: Annotated[
        float | None, typer.Option(help="Fraction of the card of a generation engine.", rich_help_panel=GPU)
    ] = None,
    assume_family: Annotated[
        str | None, typer.Option(help="Read an unknown model_type as this one.", rich_help_panel=GPU)
    ] = None,
    solve: Annotated[
        bool, typer.Option("--largest/--no-largest", help="Solve for the largest that fits.", rich_help_panel=GPU)
    ] = True,
    levers: Annotated[bool, typer.Option("--levers", help="Say what could be changed even if it fits.")] = False,
    keep: Annotated[
        str | None, typer.Option(help="Inputs no advice may touch: max-seq-length,method,optim,num-gpus,...")
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="Solve for one quantity: 'largest batch', 'longest sequence', 'highest rank', 'cheapest card', 'fewest"
            " GPUs'."
        ),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    explain: Annotated[bool, typer.Option("--explain", help="Show the arithmetic.")] = False,
) -> None:
    """Plan a fine-tune: does it fit the card, which phase is the peak, and what is the largest that fits.

    Options are spelled as the HF Trainer, PEFT and bitsandbytes spell them; what is left out is the framework's
    default. Exit status: 0 fits or tight, 1 does not fit, 2 wrong usage.

    Examples: vram-planner train Qwen/Qwen2.5-7B-Instruct --gpu 4090 --method qlora --lora-target-modules all-linear
    --gradient-checkpointing; vram-planner train meta-llama/Llama-3.1-8B --gpu H100 --method full --num-gpus 8
    --sharding fsdp --max-seq-length 8192
    """
    card, total = find_card(gpu, gpu_memory)
    loaded = load_model(model, assume_family=assume_family)
    recipe = Recipe(
        method=method, objective=objective, framework=framework, transformers_version=transformers_version,
        framework_version=framework_version,
        lora_rank=lora_rank, lora_target_modules=_names(lora_target_modules), lora_dropout=lora_dropout,
        adapter_dtype=adapter_dtype, modules_to_save=_names(modules_to_save), freeze_layers=freeze_layers,
        prompt_tokens=prompt_tokens, optim=optim, optimizer_rank=optimizer_rank,
        optimizer_in_backward=optimizer_in_backward, keep_gradients=keep_gradients, ema=ema, dtype=dtype,
        autocast=autocast,
        master_weights=master_weights, grad_dtype=grad_dtype, base_quantization=base_quantization,
        bnb_4bit_use_double_quant=bnb_4bit_use_double_quant, prepare_kbit=prepare_kbit,
        per_device_train_batch_size=per_device_train_batch_size,
        gradient_accumulation_steps=gradient_accumulation_steps, max_seq_length=_length(max_seq_length),
        gradient_checkpointing=gradient_checkpointing, checkpoint_every=checkpoint_every,
        activation_offload=activation_offload, attn_implementation=attn_implementation, padding=padding, loss=loss,
        keep_outputs=keep_outputs, logits_to_keep=logits_to_keep, use_cache=use_cache, torch_compile=torch_compile,
        num_gpus=num_gpus, sharding=sharding, shard_group=shard_group, tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size, context_parallel_size=context_parallel_size,
        expert_parallel_size=expert_parallel_size, sequence_parallel=sequence_parallel,
        offload_optimizer=offload_optimizer, offload_parameters=offload_parameters,
        generation_share=generation_share,
    )  # fmt: skip
    plan = plan_training(loaded, recipe, card, gpu_memory_bytes=total)
    largest = largest_that_fits(loaded, recipe, card, gpu_memory_bytes=total) if solve and format != "csv" else None
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    advice = None
    if levers or keep is not None or goal is not None or (plan.verdict != "fits" and format is not Format.CSV):
        from planner.levers.training import TrainingQuestion, advise_training, kept_recipe_inputs

        question = TrainingQuestion(model=loaded, recipe=recipe, gpu=card, gpu_memory_bytes=total)
        solved = None
        if goal is not None:
            from planner.levers.training_goal import parse_training_goal, solve_training

            solved = solve_training(question, parse_training_goal(goal))
        advice = advise_training(question, plan, keep=kept_recipe_inputs(keep or ""), solved=solved)
    typer.echo(render_training(plan, largest, format=str(format), advice=advice, colour=colour, explain=explain))
    if plan.verdict == "does_not_fit":
        raise typer.Exit(1)


def _names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas; a regular expression stays whole."""
    if text is None:
        return ()
    if any(mark in text for mark in "*|()[]\\^$"):
        return (text,)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _length(text: str) -> int:
    length = token_count(text, "--max-seq-length")
    return 0 if length is None else length
