"""What trainers' command lines say in words of their own, and the command that a recipe is run with.

HF Trainer and TRL (`--bf16 True`, `--use_peft`, `--load_in_4bit`), LLaMA-Factory (`--finetuning_type`, `--stage`),
DeepSpeed's and FSDP's switches, and the launchers before them. Reading such words and writing them are two directions
of one table here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from planner.contract.inputs import inputs_of, option, spelled_out, words_of
from planner.errors import UsageError
from planner.training.inputs import Recipe
from planner.training.sharding.deepspeed_file import deepspeed_inputs

_PANEL: Final = "Trainers' own words"
_LAUNCHERS: Final = (
    "accelerate",
    "torchrun",
    "deepspeed",
    "python",
    "python3",
    "uv",
    "trl",
    "llamafactory-cli",
    "axolotl",
    "swift",
    "launch",
    "run",
    "train",
    "-m",
)
_STAGES: Final = {"sft": "sft", "dpo": "dpo", "kto": "kto", "rm": "reward", "ppo": "ppo", "grpo": "grpo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerWords:
    """Options of trainers that set several inputs of the recipe, or none."""

    model_name_or_path: Annotated[
        str | None, option("The model.", "--model-name-or-path", "--base-model", panel=_PANEL, ours=True)
    ] = None
    bf16: Annotated[bool | None, option("16-bit autocast.", "--bf16", panel=_PANEL, ours=True)] = None
    fp16: Annotated[bool | None, option("16-bit autocast.", "--fp16", panel=_PANEL, ours=True)] = None
    use_peft: Annotated[bool | None, option("Adapters.", "--use-peft", panel=_PANEL, ours=True)] = None
    use_dora: Annotated[bool | None, option("DoRA.", "--use-dora", panel=_PANEL, ours=True)] = None
    load_in_4bit: Annotated[bool | None, option("A 4-bit base.", "--load-in-4bit", panel=_PANEL, ours=True)] = None
    load_in_8bit: Annotated[bool | None, option("An 8-bit base.", "--load-in-8bit", panel=_PANEL, ours=True)] = None
    quantization_bit: Annotated[int | None, option("4 or 8.", "--quantization-bit", panel=_PANEL, ours=True)] = None
    finetuning_type: Annotated[
        str | None, option("full, lora, freeze.", "--finetuning-type", "--train-type", panel=_PANEL, ours=True)
    ] = None
    stage: Annotated[
        str | None, option("sft, dpo, rm, ...", "--stage", panel=_PANEL, ours=True, choices=tuple(_STAGES))
    ] = None
    use_liger_kernel: Annotated[
        bool | None, option("Liger's loss.", "--use-liger-kernel", "--enable-liger-kernel", panel=_PANEL, ours=True)
    ] = None
    zero_stage: Annotated[int | None, option("DeepSpeed's stage.", "--zero-stage", panel=_PANEL, ours=True)] = None
    use_deepspeed: Annotated[bool | None, option("DeepSpeed.", "--use-deepspeed", panel=_PANEL, ours=True)] = None
    deepspeed: Annotated[
        str | None, option("DeepSpeed's JSON.", "--deepspeed", "--deepspeed-config-file", panel=_PANEL, ours=True)
    ] = None
    use_fsdp: Annotated[bool | None, option("FSDP.", "--use-fsdp", panel=_PANEL, ours=True)] = None
    fsdp: Annotated[
        str | None, option("FSDP's words: full_shard auto_wrap offload.", "--fsdp", panel=_PANEL, ours=True)
    ] = None

    @property
    def sharding(self) -> str | None:
        """What DeepSpeed's and FSDP's switches say."""
        if self.zero_stage is not None:
            if self.zero_stage not in (1, 2, 3):
                raise UsageError(f"--zero-stage is {self.zero_stage}; expected 1, 2 or 3", field="zero_stage")
            return f"zero{self.zero_stage}"
        return "fsdp" if self.fsdp or self.use_fsdp else None


def recipe_of_words(words: TrainerWords, given: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's inputs that were given, and those that the trainers' words mean.

    Raises:
        UsageError: one says another than the other.
    """
    found: dict[str, Any] = dict(given)
    for name, value in _meant(words).items():
        if name in found and found[name] != value:
            raise UsageError(f"{name.replace('_', '-')} is given twice, as {found[name]} and as {value}", field=name)
        found[name] = value
    return found


def _meant(words: TrainerWords) -> dict[str, Any]:
    found: dict[str, Any] = deepspeed_inputs(words.deepspeed) if words.deepspeed is not None else {}
    for name, switch in (("bf16", words.bf16), ("fp16", words.fp16)):
        if switch:
            found["autocast"] = name
    packed = words.load_in_4bit or words.quantization_bit == 4
    if words.load_in_8bit or words.quantization_bit == 8:
        found["base_quantization"], packed = "int8", True
    if words.finetuning_type is not None:
        found["method"] = words.finetuning_type
    elif words.use_peft:
        found["method"] = "lora"
    if packed and found.get("method", "lora") == "lora":
        found["method"] = "qlora"
    if words.use_dora:
        found["method"] = "qdora" if packed else "dora"
    if words.stage is not None:
        found["objective"] = _STAGES[words.stage]
    if words.use_liger_kernel:
        found["loss"] = "liger"
    if words.sharding is not None:
        found["sharding"] = words.sharding
    if words.fsdp and "offload" in words.fsdp:
        found["offload_parameters"] = True
    return found


def without_launcher(words: Sequence[str]) -> list[str]:
    """A pasted command without its launcher and script; the launcher's options stay."""
    rest = list(words)
    if not rest or rest[0] not in _LAUNCHERS:
        return rest
    return [word for word in rest if word not in _LAUNCHERS and not word.endswith(".py")]


def command(model: str, recipe: Recipe) -> tuple[str, ...]:
    """The command that runs a recipe: launcher, script, HF Trainer's and PEFT's arguments; read back it is the recipe.

    Args:
        recipe: as it was asked, without defaults.
    """
    return tuple(_words(model, recipe))


def _words(model: str, recipe: Recipe) -> Iterator[str]:
    if recipe.num_gpus > 1:
        yield from ("accelerate", "launch", "--num_processes", str(recipe.num_gpus))
        if recipe.sharding in ("zero1", "zero2", "zero3"):
            yield from ("--use_deepspeed", "--zero_stage", recipe.sharding[-1])
    else:
        yield "python"
    yield from ("train.py", "--model_name_or_path", model)
    said: set[str] = {"num_gpus"}
    if recipe.sharding in ("zero1", "zero2", "zero3"):
        said.add("sharding")
    elif recipe.sharding == "fsdp":
        said.add("sharding")
        yield from ("--fsdp", "full_shard auto_wrap" + (" offload" if recipe.offload_parameters else ""))
        if recipe.offload_parameters:
            said.add("offload_parameters")
    if recipe.method == "lora":
        yield from ("--use_peft", "True")
        said.add("method")
    elif recipe.method == "qlora" and recipe.base_quantization in (None, "nf4"):
        yield from ("--use_peft", "True", "--load_in_4bit", "True")
        said.add("method")
    if recipe.autocast in ("bf16", "fp16"):
        yield from (f"--{recipe.autocast}", "True")
        said.add("autocast")
    if recipe.loss == "liger":
        yield from ("--use_liger_kernel", "True")
        said.add("loss")
    for word in words_of(recipe, leave=said):
        yield _underscored(word)
    for one in inputs_of(Recipe):
        value = getattr(recipe, one.name)
        if one.option.ours and one.name not in said and value is not None and value != one.default:
            yield from (_underscored(word) for word in spelled_out(one, value))


def _underscored(word: str) -> str:
    return "--" + word[2:].replace("-", "_") if word.startswith("--") else word
