"""What a recipe cannot ask for: values out of range, options that contradict each other or the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from planner.errors import UsageError
from planner.training.stacks.quantisers import check_trains

if TYPE_CHECKING:
    from planner.model.model import Model
    from planner.training.recipe import Recipe

_SHARDED = ("zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp")
_TRAINS_MATRICES = ("full", "freeze", "galore", "badam", "lisa")
_WHOLE_LAYERS = ("zero3", "fsdp", "fsdp2", "hsdp")


def check(recipe: Recipe) -> None:
    """Refuse what cannot be run, whatever the model.

    Raises:
        UsageError: names the option.
    """
    if recipe.framework == "megatron" and "8bit" in (recipe.optim or ""):
        raise UsageError("Megatron has no 8-bit optimizer; use --optim adamw_apex_fused", field="optim")
    if recipe.framework == "megatron" and recipe.sharding in ("zero2", "zero3"):
        raise UsageError(
            f"--sharding {recipe.sharding} is DeepSpeed's; Megatron divides the optimizer's states alone: zero1, or"
            " ddp for none",
            field="sharding",
        )
    _check_base(recipe)
    _check_gpus(recipe)
    _check_idle(recipe)


def _check_base(recipe: Recipe) -> None:
    quantised = recipe.base_quantization != "none"
    if quantised and not recipe.adapters and recipe.method not in ("inference", "prompt"):
        raise UsageError(
            f"--base-quantization {recipe.base_quantization} freezes the base; --method {recipe.method} trains it:"
            " use qlora",
            field="base_quantization",
        )
    if recipe.method in ("qlora", "qdora") and not quantised:
        raise UsageError(
            f"--method {recipe.method} needs a quantised base, and --base-quantization is none",
            field="base_quantization",
        )


def _check_gpus(recipe: Recipe) -> None:
    gpus, sharding = recipe.num_gpus, recipe.sharding
    if sharding in _SHARDED and gpus == 1:
        raise UsageError(
            f"--sharding {sharding} shares states between GPUs, and --num-gpus is 1; leave it out", field="sharding"
        )
    model_ways = recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.context_parallel_size
    if gpus % model_ways:
        raise UsageError(
            f"--num-gpus {gpus} is not a multiple of tensor x pipeline x context parallel = {model_ways}",
            field="num_gpus",
        )
    ranks = gpus // (recipe.tensor_parallel_size * recipe.pipeline_parallel_size)
    # Megatron deals experts out over tensor-parallel ranks too, each of which then holds whole experts
    dealt = ranks * recipe.tensor_parallel_size if recipe.framework == "megatron" else ranks
    if dealt % recipe.expert_parallel_size:
        raise UsageError(
            f"--expert-parallel-size {recipe.expert_parallel_size} deals experts out over the {dealt} GPUs that hold"
            " the same layers, and does not divide them",
            field="expert_parallel_size",
        )
    if recipe.shard_group is not None:
        if sharding != "hsdp":
            raise UsageError(f"--shard-group is for --sharding hsdp, not {sharding}", field="shard_group")
        if ranks % recipe.shard_group:
            raise UsageError(
                f"--shard-group {recipe.shard_group} does not divide the {ranks} data-parallel GPUs",
                field="shard_group",
            )
    if recipe.offload_parameters and sharding not in _WHOLE_LAYERS:
        raise UsageError(
            f"--offload-parameters fetches a layer at a time, which --sharding {' and '.join(_WHOLE_LAYERS[:3])} do,"
            f" not {sharding}",
            field="offload_parameters",
        )


def _check_idle(recipe: Recipe) -> None:
    """Options that would change nothing."""
    checkpointing = bool(recipe.gradient_checkpointing)
    idle = {
        "freeze_layers": (recipe.freeze_layers is not None and recipe.method != "freeze", "is for --method freeze"),
        "checkpoint_every": (recipe.checkpoint_every > 1 and not checkpointing, "needs --gradient-checkpointing"),
        "sequence_parallel": (
            recipe.sequence_parallel and recipe.tensor_parallel_size == 1,
            "goes with --tensor-parallel-size",
        ),
        "modules_to_save": (bool(recipe.modules_to_save) and not recipe.adapters, "goes with adapters"),
        "optimizer_in_backward": (
            recipe.optimizer_in_backward and recipe.gradient_accumulation_steps > 1,
            "uses gradients up at once, and --gradient-accumulation-steps adds them up",
        ),
    }
    for option, (asked, why) in idle.items():
        if asked:
            raise UsageError(f"--{option.replace('_', '-')} {why}", field=option)


def check_model(model: Model, recipe: Recipe) -> None:
    """Refuse what this model cannot be asked for.

    Raises:
        UsageError: names the option.
    """
    spec = model.spec
    _check_checkpoint(spec.quantization_config, recipe)
    if recipe.objective == "mlm" and spec.decoder:
        raise UsageError(
            f"--objective mlm masks tokens of an encoder, and {spec.model_type} is a decoder; use sft",
            field="objective",
        )
    ways = recipe.expert_parallel_size
    if ways > 1:
        experts = {t.num_experts for layer in spec.layers for t in layer.tensors(spec.hidden_size) if t.num_experts}
        if not experts:
            raise UsageError("--expert-parallel-size: this model has no experts", field="expert_parallel_size")
        if any(count % ways for count in experts):
            raise UsageError(
                f"--expert-parallel-size {ways} does not divide {', '.join(map(str, sorted(experts)))} experts",
                field="expert_parallel_size",
            )
    heads = {h for layer in spec.layers for m in layer.mixers if (h := getattr(m, "num_attention_heads", 0))}
    if any(count % recipe.tensor_parallel_size for count in heads):
        raise UsageError(
            f"--tensor-parallel-size {recipe.tensor_parallel_size} does not divide"
            f" {', '.join(map(str, sorted(heads)))} attention heads",
            field="tensor_parallel_size",
        )
    if recipe.pipeline_parallel_size > len(spec.layers):
        raise UsageError(
            f"--pipeline-parallel-size {recipe.pipeline_parallel_size} is more than the {len(spec.layers)} layers",
            field="pipeline_parallel_size",
        )


def _check_checkpoint(config: Mapping[str, object] | None, recipe: Recipe) -> None:
    """A quantised checkpoint trains as its quantiser lets it."""
    if config is None and recipe.dequantize:
        raise UsageError("--dequantize: this checkpoint is not quantised", field="dequantize")
    if config is not None and recipe.method != "inference":
        check_trains(config, dequantize=recipe.dequantize)
        if recipe.method in _TRAINS_MATRICES and not recipe.dequantize:
            raise UsageError(
                f"--method {recipe.method} trains weights, and this checkpoint's are quantised; use an adapter, or the"
                " plain model where there is one",
                field="method",
            )
        if recipe.dequantize:
            return
        if recipe.base_quantization not in (None, "none"):
            raise UsageError(
                f"--method {recipe.method} with --base-quantization {recipe.base_quantization}: this checkpoint is"
                " quantised already; use --method lora for adapters on it as it is",
                field="base_quantization",
            )
