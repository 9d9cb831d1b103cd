"""Runs that a script sets up with transformers, TRL, PEFT and Unsloth: their configs, models and adapters."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from planner.launches.python.module import FoundCall
from planner.launches.python.training_names import (
    BITS,
    CAUSAL,
    CONFIG_FIELDS,
    LORA,
    NAMES,
    OBJECTIVE,
    TRAINING,
    UNSLOTH,
)
from planner.launches.python.values import Known, Unknown, unknown_in
from planner.launches.record import Value
from planner.launches.trainers.recipe import Run

if TYPE_CHECKING:
    from planner.launches.python.reading import Script


def read_run(script: Script, calls: list[FoundCall]) -> Run | None:
    """The run that these calls set up."""
    reader = _Reader(script, calls)
    return reader.read()


class _Reader:
    def __init__(self, script: Script, calls: list[FoundCall]) -> None:
        self.script, self.calls = script, calls
        self.run = Run(script.context, "transformers", file=script.file)
        self.hows: list[str] = []

    def read(self) -> Run:
        run, script = self.run, self.script
        unsloth = any(
            call.name.rsplit(".", 2)[-2:-1] and call.name.split(".")[-2] in UNSLOTH
            for call in self.calls
            if "." in call.name
        )
        trl = any(
            TRAINING[call.last] in ("config", "trainer") and _prefix(call.last) is not None for call in self.calls
        )
        run.plan.tool = "unsloth" if unsloth else "trl" if trl else "transformers"
        if script.context.versions.get(run.plan.tool):
            run.plan.version, run.plan.version_source = script.context.versions[run.plan.tool]
        run.has_config = False
        for call in self.calls:
            kind = TRAINING[call.last]
            run.has_config = run.has_config or kind in ("config", "trainer")
            if kind == "config":
                self.config(call)
            elif kind == "trainer":
                self.trainer(call)
        self.models(unsloth)
        self.adapters(unsloth)
        self.tokenizer()
        if script.evaluator.bf16_assumed:
            script.context.launch.note("bf16 follows the card: a card that has bfloat16 is assumed")
        if self.hows:
            script.context.launch.note(
                f"defaults of the script's own options were used: {', '.join(dict.fromkeys(self.hows))[:300]};"
                " a caller may change them"
            )
        return run

    def put(self, name: str, value: Known | Unknown, line: int, *, shown: str | None = None) -> None:
        """A field of the run, or what must be asked about it."""
        launch = self.script.context.launch
        if isinstance(value, Unknown):
            shown = shown or name
            if value.computed_list:
                launch.skip(f"{shown} ({value.why}, line {line})", matters=True)
            else:
                launch.need(shown, f"{value.why} (line {line})", settle=value.settle or name)
            return
        inner = unknown_in(value.value)
        if inner is not None:
            self.put(name, inner, line, shown=shown)
            return
        if value.how != "stated":
            self.hows.append(f"{name} ({value.how})")
        if value.value is not None:
            self.run.fields[name] = Value(value.value, line, self.script.file, value.how)

    def config(self, call: FoundCall) -> None:
        """TrainingArguments and its kin: fields by name."""
        for name, (value, line, _) in self.script.arguments(call, ("output_dir",)).items():
            if name == "model_init_kwargs" and isinstance(value, Known) and isinstance(value.value, dict):
                for key in ("dtype", "torch_dtype", "attn_implementation"):
                    if key in value.value:
                        inner = value.value[key]
                        self.put(key, inner if isinstance(inner, Unknown) else Known(inner), line)
                continue
            if name in CONFIG_FIELDS:
                self.put(name, value, line)
        self.objective(call)

    def objective(self, call: FoundCall) -> None:
        prefix = _prefix(call.last)
        if prefix is not None and prefix in OBJECTIVE:
            self.run.fields["objective"] = Value(OBJECTIVE[prefix], self.script.line(call.node), self.script.file)

    def trainer(self, call: FoundCall) -> None:
        """A trainer's own arguments: a model by name, and what older releases took here."""
        self.objective(call)
        for name, (value, line, node) in self.script.arguments(call, ("model",)).items():
            if (
                name == "model"
                and isinstance(value, Known)
                and isinstance(value.value, str)
                and self.run.plan.model is None
            ):
                self.model(value, line)
            elif name in ("max_seq_length", "packing", "max_prompt_length"):
                if name not in self.run.fields:
                    self.put(name, value, line)
            elif (
                name == "peft_config"
                and node is not None
                and not (isinstance(node, ast.Constant) and node.value is None)
            ):
                self.run.adapters = True

    def model(self, value: Known | Unknown, line: int) -> None:
        from planner.launches.trainers.programs.trl import put_model

        if isinstance(value, Unknown):
            self.script.context.launch.need("model", f"{value.why} (line {line})", settle=value.settle or "model")
            return
        if value.how != "stated":
            self.hows.append(f"model ({value.how})")
        put_model(self.script.context, self.run, Value(value.value, line, self.script.file, value.how))

    def models(self, unsloth: bool) -> None:
        """from_pretrained of a model: its name, dtype, attention and quantisation."""
        loaders = [call for call in self.calls if call.last == "from_pretrained" and _loads_model(call, unsloth)]
        for call in loaders:
            if (
                call.target
                and any(mark in call.target.lower() for mark in ("ref", "reward", "teacher"))
                and len(loaders) > 1
            ):
                self.script.context.launch.note(
                    f"line {self.script.line(call.node)}: a further model is loaded beside the one that is trained"
                )
                continue
            self.loader(call, unsloth)
            break
        if loaders or self.run.plan.model is not None or self.script.context.launch.needs[:1] == ["model"]:
            return
        values = self.script.context.settings.values
        if "model" in values:
            self.model(Known(values["model"], "--set"), 1)
            return
        made = [
            call
            for call in self.script.calls
            if call.target and "model" in call.target.lower() and call.last not in TRAINING
        ]
        why = "no from_pretrained is called with a name"
        if made:
            found = self.script.evaluator.value(made[0].node, made[0].scope, made[0].node.lineno)
            why = f"{found.why} (line {self.script.line(made[0].node)})" if isinstance(found, Unknown) else why
        self.script.context.launch.need("model", why, settle="model")

    def loader(self, call: FoundCall, unsloth: bool) -> None:
        first = "model_name" if unsloth else "pretrained_model_name_or_path"
        arguments = self.script.arguments(call, (first,))
        name = arguments.get(first) or arguments.get("pretrained_model_name_or_path") or arguments.get("model_name")
        if name is not None:
            self.model(name[0], name[1])
        for key in ("dtype", "torch_dtype", "attn_implementation", *BITS):
            if key in arguments:
                self.put(key, arguments[key][0], arguments[key][1])
        if arguments.get("use_flash_attention_2"):
            self.put("attn_implementation", Known("flash_attention_2"), arguments["use_flash_attention_2"][1])
        if unsloth:
            self.unsloth(arguments, call)
        for bits in [one for one in self.calls if one.last == "BitsAndBytesConfig"]:
            for key, (value, line, _) in self.script.arguments(bits).items():
                if key in BITS:
                    self.put(key, value, line)

    def unsloth(self, arguments: dict[str, tuple[Known | Unknown, int, ast.expr | None]], call: FoundCall) -> None:
        if "max_seq_length" in arguments:
            self.put("max_seq_length", arguments["max_seq_length"][0], arguments["max_seq_length"][1])
        full = arguments.get("full_finetuning")
        if full is not None and isinstance(full[0], Known) and full[0].value is True:
            self.run.adapters = False
            self.run.fields.pop("load_in_4bit", None)
            return
        if "load_in_4bit" not in arguments and not _is_true(arguments.get("load_in_8bit")):
            self.run.fields["load_in_4bit"] = Value(
                True, self.script.line(call.node), self.script.file, "default of Unsloth"
            )
            self.script.context.launch.note("load_in_4bit is not stated: Unsloth's default is True")

    def adapters(self, unsloth: bool) -> None:
        """LoraConfig where it is used, get_peft_model, prepare_model_for_kbit_training."""
        for call in self.calls:
            if call.last == "prepare_model_for_kbit_training":
                line = self.script.line(call.node)
                self.run.put("prepare-kbit", True, line)
                said = self.script.arguments(call).get("use_gradient_checkpointing")
                if said is not None and isinstance(said[0], Known):
                    self.run.fields.setdefault("gradient_checkpointing", Value(said[0].value, line, self.script.file))
            elif call.last == "get_peft_model" and unsloth and "." in call.name:
                self.run.adapters = True
                self.unsloth_adapters(call)
            elif call.last in ("get_peft_model", "add_adapter"):
                self.run.adapters = True
        for call in self.calls:
            if call.last == "LoraConfig":
                for name, (value, line, _) in self.script.arguments(call).items():
                    if name in LORA:
                        self.put(LORA[name], value, line, shown=NAMES.get(name, name))
        if self.run.adapters is None:
            self.run.adapters = False
            if any(call.last == "LoraConfig" for call in self.calls):
                self.run.states_method = False
                self.script.context.launch.note("a LoraConfig is made and not seen in use: the method is not stated")
        if self.run.plan.model is None:
            self.run.states_method = self.run.states_method and bool(self.run.adapters)

    def unsloth_adapters(self, call: FoundCall) -> None:
        arguments = self.script.arguments(call)
        for name, (value, line, _) in arguments.items():
            if name in LORA:
                self.put(LORA[name], value, line, shown=NAMES.get(name, name))
        said = arguments.get("use_gradient_checkpointing")
        line = said[1] if said is not None else self.script.line(call.node)
        kept = said[0].value if said is not None and isinstance(said[0], Known) else "unsloth"
        how = "stated" if said is not None else "default of Unsloth"
        if kept is not None:
            self.run.fields["gradient_checkpointing"] = Value(kept, line, self.script.file, how)

    def tokenizer(self) -> None:
        """The tokenizer's call gives the length where no config does."""
        fields = self.run.fields
        if any(
            name in fields for name in ("max_length", "max_seq_length", "max_completion_length", "max_prompt_length")
        ):
            return
        for call in self.script.calls:
            names = {keyword.arg for keyword in call.node.keywords}
            if "max_length" not in names or not names & {"truncation", "padding"}:
                continue
            arguments = self.script.arguments(call)
            value, line, _ = arguments["max_length"]
            if isinstance(value, Known) and isinstance(value.value, int):
                self.put("max_length", value, line)
                padding = arguments.get("padding")
                if padding is not None and isinstance(padding[0], Known) and padding[0].value == "max_length":
                    fields["pad_to_max_length"] = Value(True, line, self.script.file)
                return
            self.put("max_length", value, line)
            return


def _prefix(name: str) -> str | None:
    for end in ("Config", "Trainer"):
        bare = name.removesuffix(end)
        if bare != name and bare in OBJECTIVE:
            return bare
    return None


def _loads_model(call: FoundCall, unsloth: bool) -> bool:
    owner = call.name.split(".")[-2] if "." in call.name else ""
    if unsloth:
        return owner in UNSLOTH
    return (
        any(mark in owner for mark in CAUSAL) and "Tokenizer" not in owner and "ValueHead" not in owner
    ) or owner.endswith("ValueHead")


def _is_true(found: tuple[Known | Unknown, int, Any] | None) -> bool:
    return found is not None and isinstance(found[0], Known) and found[0].value is True
