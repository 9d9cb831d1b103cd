"""LLaMA-Factory's YAML, JSON and `llamafactory-cli train FILE key=value` (llamafactory 0.9.5: hparams)."""

from __future__ import annotations

from planner.launches.context import Context
from planner.launches.documents import Map
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument
from planner.launches.trainers.arguments import file_fields, hf_arguments, map_fields, overrides
from planner.launches.trainers.fields import DTYPES
from planner.launches.trainers.programs.trl import put_model
from planner.launches.trainers.recipe import Run

_STAGES = {
    "sft": "sft",
    "dpo": "dpo",
    "kto": "kto",
    "rm": "reward",
    "ppo": "ppo",
    "orpo": "orpo",
    "simpo": "orpo",
    "pt": None,
}


def read_cli(context: Context, words: list[Argument]) -> list[Run]:
    """`train FILE key=value`, or `train --key value`: what stands on the line wins over the file."""
    if words and not words[0].text.startswith("-"):
        fields = file_fields(context, words[0].text)
        over = overrides(context, words[1:])
        if any(word.text.startswith("--") for word in words[1:]):
            over |= hf_arguments(context, words[1:])
        return [read_fields(context, {**fields, **over})]
    return [read_fields(context, hf_arguments(context, words))]


def read_config(context: Context, config: Map) -> Run:
    """The run that a file describes; the number of GPUs is that of the launch."""
    run = read_fields(context, map_fields(config, context.file))
    context.launch.note(
        "the number of GPUs is that of the launch (FORCE_TORCHRUN, NPROC_PER_NODE), not in the file: one is planned"
    )
    return run


def read_fields(context: Context, fields: dict[str, Value]) -> Run:
    """The run of these fields."""
    run = Run(context, "llamafactory")
    run.fields.update(fields)
    put_model(context, run, fields.get("model_name_or_path"))
    kind = str(fields["finetuning_type"].value) if "finetuning_type" in fields else "lora"
    run.adapters = kind == "lora"
    place = fields.get("finetuning_type") or fields.get("model_name_or_path") or Value(None, 1, context.file)
    if kind == "freeze":
        run.fields["method"] = Value("freeze", place.line, place.file)
        trained = fields.get("freeze_trainable_layers")
        context.launch.note(
            f"freeze trains the last {trained.value if trained else 2} layers: the planner counts those that are frozen"
        )
    elif kind == "oft":
        context.launch.need("finetuning_type", "oft is not read", settle="method")
    stage = fields.get("stage")
    if stage is not None:
        preference = str(fields["pref_loss"].value) if "pref_loss" in fields else ""
        objective = _STAGES.get(str(stage.value))
        if str(stage.value) == "dpo" and preference in ("orpo", "simpo"):
            objective = "orpo"
        if objective is not None:
            run.fields["objective"] = Value(objective, stage.line, stage.file)
    if run.flag("pure_bf16"):
        run.fields["dtype"] = Value("bfloat16", fields["pure_bf16"].line, fields["pure_bf16"].file)
        run.fields.pop("bf16", None)
    off = fields.get("disable_gradient_checkpointing")
    if off is not None and run.flag("disable_gradient_checkpointing"):
        run.fields["gradient_checkpointing"] = Value(False, off.line, off.file)
    attention = fields.get("flash_attn")
    if attention is not None and str(attention.value) in ("fa2", "sdpa", "fa3"):
        run.fields["attn_implementation"] = Value(attention.value, attention.line, attention.file)
    precision = fields.get("infer_dtype")
    if precision is not None and DTYPES.get(str(precision.value)):
        run.fields.pop("infer_dtype")
    if "quantization_bit" in fields:
        double = fields.get("double_quantization")
        if double is None:
            run.plan.defaults["bnb-4bit-use-double-quant"] = True
    if "image_max_pixels" in fields or "video_max_pixels" in fields:
        context.launch.note("image_max_pixels bounds the image tokens: not an input here")
    return run
