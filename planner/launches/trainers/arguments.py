"""Words of training commands: launchers' own options, HfArgumentParser's, and hydra's `key=value`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from planner.launches.context import Context
from planner.launches.documents import Map, as_map, read_json, read_yaml
from planner.launches.record import Value
from planner.launches.scalars import scalar
from planner.launches.shell.expansion import Argument

# Fields that change memory: without a value they are asked for. Others may hold any variable.
MEMORY_FIELDS: Final = frozenset(
    [
        "model_name_or_path",
        "model",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "gradient_checkpointing",
        "block_size",
        "model_max_length",
        "max_length",
        "max_seq_length",
        "cutoff_len",
        "bf16",
        "fp16",
        "torch_dtype",
        "dtype",
        "optim",
        "use_peft",
        "lora_r",
        "lora_rank",
        "lora_target_modules",
        "target_modules",
        "lora_target",
        "load_in_4bit",
        "load_in_8bit",
        "quantization_bit",
        "quant_bits",
        "fsdp",
        "deepspeed",
        "use_liger_kernel",
        "packing",
        "padding_free",
        "attn_implementation",
        "attn_impl",
        "max_prompt_length",
        "max_completion_length",
        "vllm_gpu_memory_utilization",
        "use_vllm",
        "vllm_mode",
        "finetuning_type",
        "train_type",
        "tuner_type",
        "sft_type",
        "model_id_or_path",
        "model_type",
        "freeze_vit",
        "max_len",
        "micro_train_batch_size",
        "zero_stage",
        "pretrain",
    ]
)
_BOOLEAN_FIELDS: Final = frozenset(
    [
        "gradient_checkpointing",
        "bf16",
        "fp16",
        "use_peft",
        "load_in_4bit",
        "load_in_8bit",
        "packing",
        "padding_free",
        "use_liger_kernel",
        "use_vllm",
        "torch_compile",
        "use_dora",
        "use_rslora",
        "bnb_4bit_use_double_quant",
        "use_bnb_nested_quant",
        "freeze_vit",
        "use_flash_attn",
        "do_train",
        "do_eval",
        "activation_offloading",
        "precompute_ref_log_probs",
        "sync_ref_model",
        "trust_remote_code",
        "tf32",
    ]
)


def flag_words(words: Sequence[Argument], alone: Collection[str]) -> tuple[dict[str, Argument], list[Argument], bool]:
    """(options by name with underscores, words from the script on, whether the script is a module) of a launcher."""
    found: dict[str, Argument] = {}
    module = False
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        index += 1
        head, equals, value = word.text.partition("=")
        name = head.lstrip("-").replace("-", "_")
        if head in alone or f"--{name}" in alone:
            module = module or head in ("-m", "--module")
            found[name] = Argument("true", word.line)
        elif equals:
            found[name] = Argument(value, word.line, word.how, word.missing)
        elif index < len(words):
            found[name] = words[index]
            index += 1
    return found, list(words[index:]), module


def hf_arguments(context: Context, words: Sequence[Argument]) -> dict[str, Value]:
    """Fields of an HfArgumentParser line: dashes are underscores, lists by blanks, bare flags true, --no_x false."""
    fields: dict[str, Value] = {}
    index = 0
    if len(words) == 1 and words[0].text.endswith((".json", ".yaml", ".yml")):
        return file_fields(context, words[0].text)
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text.startswith("--") or len(word.text) < 4:
            continue
        head, equals, attached = word.text.partition("=")
        name = head[2:].replace("-", "_")
        values: list[Argument] = [Argument(attached, word.line, word.how, word.missing)] if equals else []
        while not equals and index < len(words) and not words[index].text.startswith("--"):
            values.append(words[index])
            index += 1
        name, negated = _field(name)
        missing = [value for value in values if value.missing]
        if missing:
            if name in MEMORY_FIELDS:
                for value in missing:
                    context.missing(value, f"--{name}")
                context.launch.skip(f"--{name} {missing[0].text} (line {word.line})", matters=True)
            continue
        how = next((value.how for value in values if value.how != "stated"), "stated")
        for value in values:
            context.secrets.keep(name, value.text)
        if not values:
            fields[name] = Value(not negated, word.line, context.file, how)
        elif len(values) == 1:
            fields[name] = Value(values[0].text, word.line, context.file, how)
        else:
            fields[name] = Value([value.text for value in values], word.line, context.file, how)
    return fields


def _field(name: str) -> tuple[str, bool]:
    """(full name, negated): argparse takes unique beginnings."""
    if name.startswith("no_") and name[3:] in _BOOLEAN_FIELDS:
        return name[3:], True
    if name in MEMORY_FIELDS or len(name) < 5:
        return name, False
    near = [one for one in MEMORY_FIELDS if one.startswith(name)]
    return (near[0], False) if len(near) == 1 else (name, False)


def file_fields(context: Context, name: str) -> dict[str, Value]:
    """The fields of a JSON or YAML file beside the source; it is asked for when it is not there."""
    found = context.file_text(name)
    if found is None:
        context.launch.skip(f"the file {name}", matters=True)
        context.launch.need(f"the file {name}", "is not here; the options stand in it")
        return {}
    if name.endswith(".json"):
        config = as_map(read_json(found[0], form="json"))
    else:
        documents = read_yaml(found[0], first_line=found[1])
        config = as_map(documents[0] if documents else None)
    return map_fields(config, found[2])


def map_fields(config: Map, file: str) -> dict[str, Value]:
    """A mapping as fields with their lines."""
    return {str(key): Value(value, config.line_of(key), file) for key, value in config.items()}


def overrides(context: Context, words: Sequence[Argument], *, separator: str = "=") -> dict[str, Value]:
    """hydra's and OmegaConf's `a.b=c`, `+a.b=c`, `++a.b=c`, `~a.b`; the last wins, a list with commas is a sweep."""
    found: dict[str, Value] = {}
    for word in words:
        text = word.text.lstrip("+")
        if word.text.startswith("~"):
            found[text.lstrip("~").partition("=")[0]] = Value(None, word.line, context.file)
            continue
        name, equals, value = text.partition(separator)
        if not equals or not name or name.startswith("-"):
            continue
        if word.missing:
            if any(
                part in name
                for part in (
                    "model",
                    "batch",
                    "length",
                    "len",
                    "offload",
                    "util",
                    "parallel",
                    "rank",
                    "gpus",
                    "nodes",
                    "dtype",
                )
            ):
                context.missing(word, name)
                context.launch.skip(f"{name} (line {word.line})", matters=True)
            continue
        if "," in value and not value.startswith(("[", "{", "'", '"')):
            context.launch.note(f"{name}: {value[:40]} is a sweep of several runs; the first is planned")
            value = value.split(",")[0]
        context.secrets.keep(name, value)
        found[name] = Value(plain(value), word.line, context.file, word.how)
    return found


def plain(text: str) -> Any:
    """A value as OmegaConf reads it: 1e-4 is a number, [a,b] a list, null nothing, quotes make text."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [plain(one) for one in text[1:-1].split(",") if one.strip()]
    value = scalar(text)
    if isinstance(value, str):
        try:
            return float(value) if value[:1].isdecimal() or value[:1] in "-." else value
        except ValueError:
            return value
    return value
