"""A training run that grows from what its launch states: names of many trainers to the planner's inputs.

Field names are those of the HF Trainer, TRL's ModelConfig and PEFT (transformers 5.24, TRL 0.9 to 1.16, peft 0.21),
which most trainers take over; each other trainer's reader renames its own to these first.
"""

from __future__ import annotations

import re
from typing import Any, Final

from planner.launches.context import Context
from planner.launches.engines.options import boolean
from planner.launches.record import LaunchError, LaunchPlan, Value
from planner.launches.trainers.defaults import defaults
from planner.launches.trainers.fields import ATTENTION, DTYPES, LENGTHS, OPTIMISERS, names
from planner.launches.trainers.reinforcement import put_reinforcement
from planner.launches.trainers.spread import (
    put_sharding,
)

_PREQUANTISED: Final = re.compile(r"bnb-4bit|-4bit\b|bnb_4bit", re.IGNORECASE)


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
        put_sharding(self)
        put_reinforcement(self)
        found = defaults(self.plan.tool, self.plan.version, self.plan.inputs)
        if not self.adapters and not self.flag("use_peft"):
            found = {name: value for name, value in found.items() if not name.startswith("lora-")}
        if not self.has_config:
            found.pop("per-device-train-batch-size", None)
        own = {name: value for name, value in self.plan.defaults.items() if name not in self.plan.inputs}
        self.plan.defaults = {**found, **own}
        return self.plan


def _batch(run: Run) -> None:
    for name, option in (
        ("per_device_train_batch_size", "per-device-train-batch-size"),
        ("gradient_accumulation_steps", "gradient-accumulation-steps"),
    ):
        at = run.number(name)
        if at is not None:
            run.put(option, at.value, at)
    for name in LENGTHS:
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
