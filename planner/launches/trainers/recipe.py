"""A training run that grows from what its launch states: names of many trainers to the planner's inputs.

Field names are those of the HF Trainer, TRL's ModelConfig and PEFT (transformers 5.24, TRL 0.9 to 1.16, peft 0.21),
which most trainers take over; each other trainer's reader renames its own to these first.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.launches.context import Context
from planner.launches.documents import Map, as_map, read_json
from planner.launches.engines.options import boolean
from planner.launches.record import LaunchError, LaunchPlan, Value

DTYPES: Final = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "torch.bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "torch.float16": "float16",
    "fp32": "float32",
    "float32": "float32",
    "torch.float32": "float32",
    "float": "float32",
}
ATTENTION: Final = {
    "flash_attn": "flash_attention_2",
    "fa2": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "flash_attention": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "fa3": "flash_attention_3",
    "sdpa": "sdpa",
    "eager": "eager",
    "flex_attention": "flex_attention",
    "flex": "flex_attention",
    "kernels-community/flash-attn2": "flash_attention_2",
    "kernels-community/flash-attn3": "flash_attention_3",
    "kernels-community/vllm-flash-attn3": "flash_attention_3",
}
# What every run needs, and the name that --set takes for it.
SETTLES: Final = {
    "model": "model",
    "batch size": "per_device_train_batch_size",
    "sequence length": "max_seq_length",
    "method": "method",
}
# transformers' own aliases (training_args.py OptimizerNames)
OPTIMISERS: Final = {"adamw_8bit": "adamw_bnb_8bit", "paged_adamw": "paged_adamw_32bit"}
_ALL_LINEAR: Final = ("all", "all-linear", "all_linear")
_LENGTHS: Final = (
    "max_length",
    "max_seq_length",
    "max_seq_len",
    "block_size",
    "model_max_length",
    "cutoff_len",
    "sequence_len",
)
_PREQUANTISED: Final = re.compile(r"bnb-4bit|-4bit\b|bnb_4bit", re.IGNORECASE)
_STAGE_IN_NAME: Final = re.compile(r"z(?:ero)?[_-]?(?:stage[_-]?)?([0-3])(?![0-9])", re.IGNORECASE)


class Run:
    """The plan of one training run, filled field by field.

    Args:
        shipped: DeepSpeed files that come with the trainer, by name, whose stage is known.
    """

    def __init__(self, context: Context, framework: str, *, file: str | None = None) -> None:
        self.context = context
        self.plan = LaunchPlan(kind="train", tool=framework)
        self.file = file if file is not None else context.file
        self.fields: dict[str, Value] = {}
        self.adapters: bool | None = None
        self.processes: int | None = None
        self.states_method = True
        self.has_config = True

    def put(self, name: str, value: Any, at: Value | int, how: str | None = None) -> None:
        """An input of the plan."""
        if isinstance(at, Value):
            self.plan.inputs[name] = Value(value, at.line, at.file, how or at.how)
        else:
            self.plan.inputs[name] = Value(value, at, self.file, how or "stated")

    def take(self, name: str) -> Value | None:
        """A field that was stated and is not null."""
        found = self.fields.get(name)
        return None if found is None or found.value is None else found

    def flag(self, name: str) -> bool | None:
        """A field as a boolean; None where it is not stated.

        Raises:
            LaunchError: neither true nor false.
        """
        found = self.take(name)
        if found is None:
            return None
        if isinstance(found.value, bool):
            return found.value
        try:
            return boolean(str(found.value))
        except ValueError:
            return None

    def number(self, name: str, *, whole: bool = True) -> Value | None:
        """A field as a number.

        Raises:
            LaunchError: not a number; names the line.
        """
        found = self.take(name)
        if found is None:
            return None
        try:
            value = float(found.value)
            if whole and value != int(value):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise LaunchError(
                f"line {found.line}: {name} is not a {'whole ' if whole else ''}number", form=self.context.launch.form
            ) from None
        return Value(int(value) if whole else value, found.line, found.file, found.how)

    def finish(self) -> LaunchPlan:
        """Turn the fields into inputs, and ask for what is missing."""
        _batch(self)
        _precision(self)
        _method(self)
        _memory(self)
        _sharding(self)
        _reinforcement(self)
        found = defaults(self.plan.tool, self.plan.version, self.plan.inputs)
        if not self.adapters and not self.flag("use_peft"):
            found = {name: value for name, value in found.items() if not name.startswith("lora-")}
        if not self.has_config:
            found.pop("per-device-train-batch-size", None)
        self.plan.defaults = {**found, **self.plan.defaults}
        return self.plan


def truth(value: Value) -> bool:
    """Whether a value says yes."""
    return value.value is True or str(value.value).strip().lower() in ("true", "1", "yes", "on")


@cache
def _default_rows() -> tuple[dict[str, str], ...]:
    return tuple(
        csv.DictReader(
            files("planner.launches.tables").joinpath("trainer_defaults.csv").read_text("utf-8").splitlines()
        )
    )


def defaults(framework: str, version: str | None, stated: Mapping[str, Value]) -> dict[str, Any]:
    """The trainer's own defaults for what is not stated, at this release (None: the newest known)."""
    from planner.launches.engines.vllm import release

    found: dict[str, Any] = {}
    for row in _default_rows():
        if row["framework"] != framework or row["input"] in stated or not row["value"]:
            continue
        asked = release(version) if version and version[0].isdigit() else (999, 0, 0)
        if row["from"] and asked < release(row["from"]):
            continue
        if row["below"] and asked >= release(row["below"]):
            continue
        text = row["value"]
        found[row["input"]] = (
            text == "true"
            if text in ("true", "false")
            else int(text)
            if text.isdigit()
            else float(text)
            if re.fullmatch(r"\d+\.\d+", text)
            else text
        )
    return found


def _batch(run: Run) -> None:
    for name, option in (
        ("per_device_train_batch_size", "per-device-train-batch-size"),
        ("gradient_accumulation_steps", "gradient-accumulation-steps"),
    ):
        at = run.number(name)
        if at is not None:
            run.put(option, at.value, at)
    for name in _LENGTHS:
        at = run.take(name)
        if at is not None and at.value not in ("None", "null", "auto", -1, "-1"):
            number = run.number(name)
            if number is not None and number.value > 0:
                run.put("max-seq-length", number.value, number)
                break
    for name in ("packing", "padding_free", "sample_packing", "neat_packing", "use_remove_padding"):
        if run.flag(name):
            run.put("padding", False, run.fields[name])
    if run.flag("pad_to_max_length"):
        run.put("padding", True, run.fields["pad_to_max_length"])
    attention = run.take("attn_implementation") or run.take("attn_impl")
    if attention is not None:
        known = ATTENTION.get(str(attention.value).lower())
        if known is not None:
            run.put("attn-implementation", known, attention)
        elif str(attention.value).lower() not in ("auto", "none", ""):
            run.context.launch.skip(f"attn_implementation (line {attention.line})", matters=True)
    optimiser = run.take("optim") or run.take("optimizer")
    if optimiser is not None and isinstance(optimiser.value, str):
        name = optimiser.value
        run.put("optim", OPTIMISERS.get(name, name), optimiser)


def _precision(run: Run) -> None:
    for name in ("bf16", "fp16"):
        at = run.take(name)
        if at is None:
            continue
        if str(at.value).lower() == "auto" or run.flag(name):
            run.put("autocast", name, at)
    mixed = run.take("mixed_precision")
    if mixed is not None and "autocast" not in run.plan.inputs:
        text = str(mixed.value).lower()
        if text in ("bf16", "fp16"):
            run.put("autocast", text, mixed)
        elif text == "no" or mixed.value is False:
            pass
    for name in ("dtype", "torch_dtype", "model_dtype"):
        at = run.take(name)
        if at is None:
            continue
        known = DTYPES.get(str(at.value).lower())
        if known is not None:
            run.put("dtype", known, at)
        break
    compiled = run.flag("torch_compile")
    if compiled is not None:
        run.put("torch-compile", compiled, run.fields["torch_compile"])


def _method(run: Run) -> None:
    plan = run.plan
    four, eight = run.flag("load_in_4bit"), run.flag("load_in_8bit")
    bits = run.number("quantization_bit") or run.number("quant_bits")
    at4 = run.fields.get("load_in_4bit") or run.fields.get("load_in_8bit") or bits
    if bits is not None:
        four, eight = bits.value == 4, bits.value == 8
        at4 = bits
    adapters = run.adapters
    if adapters is None:
        adapters = bool(run.flag("use_peft"))
    stored = plan.model is not None and _PREQUANTISED.search(plan.model) is not None
    if stored and four:
        run.context.launch.note(
            "the checkpoint is 4-bit already, so load_in_4bit adds nothing: adapters on a quantised base"
            " (QLoRA in effect)"
        )
        four = False
    if (four or eight) and at4 is not None:
        kind = run.take("bnb_4bit_quant_type")
        run.put("base-quantization", (str(kind.value) if kind else "nf4") if four else "int8", at4)
        for name in ("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "double_quantization"):
            flag = run.flag(name)
            if flag is not None:
                run.put("bnb-4bit-use-double-quant", flag, run.fields[name])
    if run.states_method:
        stated = run.take("method")
        dora, rslora = run.flag("use_dora"), run.flag("use_rslora")
        if stated is not None:
            method = str(stated.value)
        elif not adapters:
            method = "full"
        elif dora:
            method = "qdora" if four else "dora"
        elif four:
            method = "qlora"
        else:
            method = "rslora" if rslora else "lora"
        place = stated or run.take("use_peft") or run.take("lora_r") or run.take("adapter") or Value(None, 1, run.file)
        run.put("method", method, place)
    if adapters:
        _adapters(run)
    objective = run.take("objective")
    if objective is not None:
        run.put("objective", objective.value, objective)


def _adapters(run: Run) -> None:
    for name in ("lora_r", "lora_rank", "r"):
        at = run.number(name)
        if at is not None:
            run.put("lora-rank", at.value, at)
            break
    at = run.number("lora_dropout", whole=False)
    if at is not None:
        run.put("lora-dropout", at.value, at)
    for name in ("lora_target_modules", "target_modules", "lora_target"):
        found = run.take(name)
        if found is not None:
            listed = names(found.value)
            if listed:
                run.put("lora-target-modules", listed, found)
            break
    if run.flag("lora_target_linear"):
        run.put("lora-target-modules", "all-linear", run.fields["lora_target_linear"])
    for name in ("lora_modules_to_save", "modules_to_save", "additional_target"):
        found = run.take(name)
        if found is not None:
            listed = names(found.value)
            if listed and listed != "all-linear":
                run.put("modules-to-save", listed if isinstance(listed, list) else [listed], found)
            break


def names(value: Any) -> list[str] | str | None:
    """Module names of a list or of a text with commas; "all-linear" and regular expressions stay whole."""
    if isinstance(value, str):
        if value.strip().lower() in _ALL_LINEAR:
            return "all-linear"
        if any(mark in value for mark in "*|()^$\\"):
            return value
        value = [one for one in re.split(r"[,\s\[\]'\"]+", value) if one]
    if isinstance(value, list | tuple):
        listed = [str(one) for one in value if str(one).strip()]
        if len(listed) == 1:
            return names(listed[0]) if listed[0].lower() in _ALL_LINEAR else listed
        return listed or None
    return None


def _memory(run: Run) -> None:
    at = run.take("gradient_checkpointing")
    if at is not None:
        flag = run.flag("gradient_checkpointing")
        if flag is None and str(at.value) in ("unsloth", "offload", "offload_disk"):
            run.put("gradient-checkpointing", True, at)
            run.put("activation-offload", True, at)
        elif flag is not None:
            run.put("gradient-checkpointing", flag, at)
    offload = run.flag("activation_offloading")
    if offload is not None:
        run.put("activation-offload", offload, run.fields["activation_offloading"])
    for name in (
        "use_liger_kernel",
        "use_liger_loss",
        "enable_liger_kernel",
        "use_liger",
        "liger_fused_linear_cross_entropy",
    ):
        if run.flag(name):
            run.put("loss", "liger", run.fields[name])
    for name in ("offload_optimizer", "offload_parameters"):
        flag = run.flag(name)
        if flag is not None:
            run.put(name.replace("_", "-"), flag, run.fields[name])
    for name in ("tensor_parallel_size", "context_parallel_size", "pipeline_parallel_size", "expert_parallel_size"):
        number = run.number(name)
        if number is not None and number.value > 1:
            run.put(name.replace("_", "-"), number.value, number)


def _sharding(run: Run) -> None:
    plan = run.plan
    sharding = run.take("sharding")
    if sharding is not None:
        run.put("sharding", sharding.value, sharding)
    fsdp = run.take("fsdp")
    if fsdp is not None and fsdp.value not in (False, "", "False", "false"):
        read_fsdp(run, fsdp)
    elif run.take("fsdp_config") is not None and sharding is None:
        read_fsdp(run, run.fields["fsdp_config"])
    deepspeed = run.take("deepspeed")
    if deepspeed is not None:
        read_deepspeed(run, deepspeed)
    if run.processes is not None:
        plan.gpus = run.processes
        run.put("num-gpus", run.processes, run.fields.get("processes") or 1)
        if (
            run.processes > 1
            and "sharding" not in plan.inputs
            and not any("sharding" in need for need in run.context.launch.needs)
        ):
            run.put("sharding", "ddp", run.fields.get("processes") or 1, how="several processes without sharding")


def read_fsdp(run: Run, at: Value) -> None:
    """The Trainer's fsdp words with its fsdp_config, or the config alone."""
    config = run.take("fsdp_config")
    details = as_map(config.value) if config is not None else Map()
    if config is not None and isinstance(config.value, str):
        details = json_value(run, config.value) or Map()
    words = (
        at.value
        if isinstance(at.value, str)
        else " ".join(str(w) for w in at.value)
        if isinstance(at.value, list)
        else ""
    )
    version = details.get("fsdp_version", details.get("version", 1))
    taken = run.take("fsdp_version")
    if taken is not None:
        version = taken.value
    kind = "fsdp2" if str(version) == "2" else "fsdp"
    if "hybrid_shard" in words:
        kind = "hsdp"
    run.put("sharding", kind, at)
    if (
        "offload" in words.split()
        or details.get("fsdp_offload_params") is True
        or details.get("offload_params") is True
    ):
        run.put("offload-parameters", True, at)
    if details.get("activation_checkpointing") is True or details.get("fsdp_activation_checkpointing") is True:
        run.put("gradient-checkpointing", True, at)
    if "shard_grad_op" in words:
        run.put("sharding", "zero2", at)


def json_value(run: Run, text: str) -> Map | None:
    """A JSON object given in place, or a file that lies beside the source; None where it is neither."""
    if text.strip().startswith("{"):
        return as_map(read_json(text, form="json"))
    found = run.context.file_text(text)
    if found is None:
        return None
    if text.endswith((".yaml", ".yml")):
        from planner.launches.documents import read_yaml

        documents = read_yaml(found[0], first_line=found[1])
        return as_map(documents[0] if documents else None)
    return as_map(read_json(found[0], form="json"))


@cache
def shipped_files() -> dict[str, dict[str, str]]:
    """DeepSpeed files and profiles that trainers ship, by trainer and name."""
    rows = csv.DictReader(
        files("planner.launches.tables").joinpath("shipped_deepspeed.csv").read_text("utf-8").splitlines()
    )
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row["framework"], {})[row["name"]] = row["settings"]
    return found


def read_deepspeed(run: Run, at: Value) -> None:
    """A DeepSpeed config: a dict, a file beside the source, or one that the trainer ships under this name."""
    value = at.value
    if isinstance(value, dict):
        apply_deepspeed(run, as_map(value) if isinstance(value, Map) else _as_map(value), at)
        return
    text = str(value).strip()
    if text in ("", "None", "null", "False", "false"):
        return
    config = json_value(run, text)
    if config is not None:
        apply_deepspeed(run, config, at)
        return
    known = shipped_files().get(run.plan.tool, {})
    name = text.rsplit("/", 1)[-1].removesuffix(".json")
    if name in known:
        for setting in known[name].split():
            key, _, what = setting.partition("=")
            run.put(key, True if what == "true" else what, at)
        run.context.launch.note(f"deepspeed {text} names a file that {run.plan.tool} ships: read from its name")
        return
    stage = _STAGE_IN_NAME.search(name)
    hint = f"; its name says stage {stage[1]}, which is a hint only" if stage else ""
    run.context.launch.skip(f"the deepspeed file {text}", matters=True)
    run.context.launch.need(f"deepspeed ({text})", f"the file is not here{hint}", settle="sharding")


def _as_map(value: Mapping[str, Any]) -> Map:
    found = Map()
    for key, item in value.items():
        found[str(key)] = _as_map(item) if isinstance(item, dict) else item
    return found


def apply_deepspeed(run: Run, config: Map, at: Value) -> None:
    """Stage, offloading and precision of a DeepSpeed config ("auto" is the Trainer's own value)."""
    zero = as_map(config.get("zero_optimization"))
    stage = zero.get("stage", 0)
    line = config.line_of("zero_optimization") if at.line == 0 else at.line
    here = Value(None, line, at.file, at.how)
    if isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage <= 3:
        run.put("sharding", f"zero{stage}" if stage else "ddp", here)
    else:
        run.context.launch.need("zero_optimization.stage", "is not a stage 0 to 3", settle="sharding")
    for key, name in (("offload_optimizer", "offload-optimizer"), ("offload_param", "offload-parameters")):
        device = as_map(zero.get(key)).get("device")
        if device is not None:
            on = str(device).lower() in ("cpu", "nvme")
            run.put(name, on, here)
            if str(device).lower() == "nvme":
                run.context.launch.note(f"{key}: nvme keeps states on disk, with buffers in host memory")
    if zero.get("cpu_offload") is True:
        run.put("offload-optimizer", True, here)
    for kind in ("bf16", "fp16"):
        enabled = as_map(config.get(kind)).get("enabled")
        if enabled is True and "autocast" not in run.plan.inputs:
            run.put("autocast", kind, here)
    for key, name in (
        ("train_micro_batch_size_per_gpu", "per-device-train-batch-size"),
        ("gradient_accumulation_steps", "gradient-accumulation-steps"),
    ):
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in run.plan.inputs:
            run.put(name, int(value), here)
    _agree(run, config)


def _agree(run: Run, config: Map) -> None:
    """train_batch_size = micro-batch x accumulation x GPUs."""
    total = config.get("train_batch_size")
    micro, steps = run.plan.get("per-device-train-batch-size"), run.plan.get("gradient-accumulation-steps", 1)
    gpus = run.processes
    if not isinstance(total, int) or not micro:
        return
    if gpus and total != micro * steps * gpus:
        run.context.launch.need(
            "train_batch_size", f"{total} is not {micro} x {steps} x {gpus}: DeepSpeed refuses to start"
        )
    elif not gpus and total % (micro * steps) == 0:
        run.context.launch.note(
            f"train_batch_size {total} with {micro} x {steps} means {total // (micro * steps)} GPUs"
        )


def _reinforcement(run: Run) -> None:
    """TRL's GRPO and its kin: prompt and completion lengths, and the engine that shares the card."""
    plan = run.plan
    prompt, answer = run.number("max_prompt_length"), run.number("max_completion_length")
    objective = plan.get("objective")
    if objective in ("grpo", "ppo", "rloo", "online_dpo") and "max-seq-length" not in plan.inputs:
        if prompt is not None and answer is not None:
            run.put("max-seq-length", prompt.value + answer.value, answer)
        elif answer is not None or prompt is not None:
            from planner.launches.engines.vllm import release

            cut = plan.version is not None and (0, 15, 0) <= release(plan.version) < (0, 29, 0)
            early = plan.version is not None and release(plan.version) < (0, 29, 0)
            if answer is None and prompt is not None:
                run.put("max-seq-length", prompt.value + (256 if early else 512), prompt)
            elif answer is not None and cut:
                run.put("max-seq-length", 512 + answer.value, answer)
            elif answer is not None:
                run.context.launch.need(
                    "sequence length",
                    "prompts are not cut in this release: the longest is not stated",
                    settle="max_prompt_length",
                )
    if run.flag("use_vllm"):
        mode = run.take("vllm_mode")
        from planner.launches.engines.vllm import release

        newest = plan.version is None or release(plan.version) >= (1, 0, 0)
        colocated = str(mode.value) == "colocate" if mode is not None else newest
        share = run.number("vllm_gpu_memory_utilization", whole=False)
        if colocated:
            at = share or mode or run.fields["use_vllm"]
            run.put("generation-share", share.value if share else 0.3, at)
        else:
            run.context.launch.note("vllm_mode server: generation runs on other GPUs, which are planned apart")
    beta = run.number("beta", whole=False)
    if beta is not None and beta.value > 0 and objective == "grpo":
        run.context.launch.note("beta above 0 needs a reference model beside the policy")
