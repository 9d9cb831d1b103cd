"""ms-swift's `swift sft|pt|rlhf`, by the release that its spelling tells (ms-swift 2.6, 3.0, 3.9, 4.6)."""

from __future__ import annotations

from collections.abc import Mapping

from planner.launches.context import Context
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.trainers.arguments import hf_arguments
from planner.launches.trainers.programs.trl import put_model
from planner.launches.trainers.recipe import Run

_METHOD_BY_RELEASE = (("tuner_type", "4.x"), ("train_type", "3.x"), ("sft_type", "2.x"))
_RL = {
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "simpo": "orpo",
    "cpo": "orpo",
    "rm": "reward",
    "ppo": "ppo",
    "grpo": "grpo",
}


def read_cli(
    context: Context, verb: str, words: list[Argument], environment: Mapping[str, Variable], *, megatron: bool = False
) -> list[Run]:
    """The run of `swift VERB ...`."""
    fields = hf_arguments(context, words)
    run = Run(context, "ms-swift")
    run.fields.update(fields)
    model = fields.get("model") or fields.get("model_id_or_path") or fields.get("model_type")
    put_model(context, run, model)
    if "model" not in fields and "model_id_or_path" not in fields and "model_type" in fields:
        context.launch.need("model", "--model_type is a name of ms-swift 2.x, not a repository", settle="model")
    kind = None
    for name, release in _METHOD_BY_RELEASE:
        if name in fields:
            kind = fields[name]
            run.plan.version = f"{release} by --{name}"
            break
    stated = context.versions.get("ms-swift")
    if stated is not None:
        run.plan.version, run.plan.version_source = stated
    method = str(kind.value) if kind is not None else "lora"
    run.adapters = method in ("lora", "longlora", "dora", "rslora", "adalora")
    if method not in ("full", "lora", "dora", "rslora"):
        context.launch.need("train type", f"{method} is not read", settle="method")
    if method == "dora":
        run.fields["use_dora"] = kind or Value(True, 1, context.file)
    rl = fields.get("rlhf_type")
    if verb == "rlhf" and rl is not None:
        objective = _RL.get(str(rl.value))
        if objective is not None:
            run.fields["objective"] = Value(objective, rl.line, rl.file)
    if "quant_bits" in fields and "bnb_4bit_use_double_quant" not in fields:
        run.plan.defaults["bnb-4bit-use-double-quant"] = True
    if "gradient_accumulation_steps" not in fields:
        context.launch.note("gradient accumulation is not stated: ms-swift derives it for 16 sequences in total")
    if not any(name in fields for name in ("max_length", "max_model_len")):
        context.launch.need("sequence length", "--max_length is not stated: it is the model's own", settle="max_length")
    for name in ("freeze_vit", "freeze_aligner"):
        if name in fields and run.flag(name) is False:
            context.launch.note(f"--{name} false trains the tower too: not an input here")
    if megatron:
        context.launch.need("sharding", "megatron's own parallel sizes are not read", settle="sharding")
    if any(name in environment for name in ("MAX_PIXELS", "VIDEO_MAX_PIXELS")):
        context.launch.note("MAX_PIXELS in the environment bounds the image tokens")
    return [run]
