"""Which trainer a command starts, and its reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.launches.context import Context
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.wrappers import base
from planner.launches.trainers.arguments import flag_words, hf_arguments
from planner.launches.trainers.programs import axolotl, hydra, llamafactory, swift, torchtune, trl
from planner.launches.trainers.recipe import Run

_TRL_OBJECTIVES: Final = (
    "sft",
    "dpo",
    "grpo",
    "kto",
    "orpo",
    "reward",
    "ppo",
    "cpo",
    "rloo",
    "online_dpo",
    "bco",
    "gkd",
    "xpo",
    "nash_md",
    "prm",
)
# A script with one of these trains; one that only names a model may do anything.
_TRAINS: Final = ("per_device_train_batch_size", "output_dir", "do_train", "learning_rate", "num_train_epochs")
_SPREAD_BY_LAUNCH: Final = ("axolotl", "llamafactory", "torchtune", "verl", "openrlhf")


def single(framework: str) -> bool:
    """Whether the trainer's bare command is one process."""
    return framework not in _SPREAD_BY_LAUNCH


def read_command(
    context: Context, words: list[Argument], *, module: bool, environment: Mapping[str, Variable]
) -> list[Run] | None:
    """The runs that a trainer's command starts; None for any other command."""
    name = base(words[0].text)
    rest = words[1:]
    verb = rest[0].text if rest else ""
    if name == "trl" and (verb in _TRL_OBJECTIVES or verb == "vllm-serve"):
        return trl.read_cli(context, verb, rest[1:]) if verb != "vllm-serve" else None
    if name == "llamafactory-cli" and verb in ("train", "api", "chat"):
        return llamafactory.read_cli(context, rest[1:]) if verb == "train" else None
    if name == "axolotl" and verb == "train":
        return axolotl.read_cli(context, rest[1:])
    if name == "tune" and verb == "run":
        return torchtune.read_cli(context, rest[1:])
    if name in ("swift", "megatron") and verb in ("sft", "pt", "rlhf"):
        return swift.read_cli(context, verb, rest[1:], environment, megatron=name == "megatron")
    if module:
        return _module(context, words[0].text, rest, environment)
    return _script(context, words[0].text, rest, environment)


def _module(context: Context, name: str, rest: list[Argument], environment: Mapping[str, Variable]) -> list[Run] | None:
    trl_script = re.fullmatch(r"trl\.scripts\.(\w+)", name)
    if trl_script and trl_script[1] in _TRL_OBJECTIVES:
        return trl.read_cli(context, trl_script[1], rest)
    if name in ("axolotl.cli.train", "axolotl.cli.main"):
        return axolotl.read_cli(context, rest)
    if name in ("llamafactory.cli", "llamafactory.launcher"):
        return llamafactory.read_cli(context, rest[1:] if rest[:1] and rest[0].text == "train" else rest)
    if name.startswith("verl.trainer.main") or name == "verl.trainer.fsdp_sft_trainer":
        return hydra.read_verl(context, rest, sft="sft" in name)
    openrlhf = re.fullmatch(r"openrlhf\.cli\.train_(\w+)", name)
    if openrlhf:
        return hydra.read_openrlhf(context, openrlhf[1], rest)
    if name == "swift.cli.sft" or name == "swift.cli.rlhf":
        return swift.read_cli(context, name.rsplit(".", 1)[1], rest, environment)
    return None


def _script(context: Context, path: str, rest: list[Argument], environment: Mapping[str, Variable]) -> list[Run] | None:
    name = base(path)
    if not name.endswith(".py") and name not in ("ray",):
        return None
    if name == "ray":
        return None
    stem = name.removesuffix(".py")
    if (
        "llamafactory" in path.replace("-", "")
        or "LLaMA-Factory" in path
        or (stem == "train" and "src/train.py" in path)
    ):
        fields = hf_arguments(context, rest) if rest and rest[0].text.startswith("--") else {}
        if fields.get("finetuning_type") or fields.get("stage"):
            return [llamafactory.read_fields(context, fields)]
        if rest and rest[0].text.endswith((".yaml", ".yml", ".json")):
            return llamafactory.read_cli(context, rest)
    if "swift/cli" in path and stem in ("sft", "pt", "rlhf"):
        return swift.read_cli(context, stem, rest, environment)
    if "torchtune" in path or stem.startswith(("lora_finetune_", "full_finetune_", "qat_")):
        options, _, _ = flag_words(rest, ())
        if "config" in options:
            return torchtune.read_recipe(context, stem, rest)
    fields = hf_arguments(context, rest)
    known = "model_name_or_path" in fields or any("model_name_or_path" in need for need in context.launch.needs)
    if not known and "per_device_train_batch_size" not in fields:
        return None
    named = trl.is_trainer_script(stem)
    if not named and not any(key in fields for key in _TRAINS):
        return None
    return [trl.read_script(context, stem, fields)]
