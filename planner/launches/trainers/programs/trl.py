"""The HF Trainer's scripts, TRL's command line and its YAML (transformers 5.24; TRL 0.9 to 1.16)."""

from __future__ import annotations

import re

from planner.launches.context import Context
from planner.launches.documents import Map, as_map, read_yaml
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument
from planner.launches.trainers.accelerate import apply_accelerate
from planner.launches.trainers.arguments import hf_arguments, map_fields
from planner.launches.trainers.recipe import Run
from planner.launches.trainers.spread import shipped_files

OBJECTIVES = {
    "sft": "sft",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "cpo": "orpo",
    "reward": "reward",
    "ppo": "ppo",
    "grpo": "grpo",
    "rloo": "grpo",
    "online_dpo": "dpo",
    "bco": "kto",
}
# Fields of TRL's trainers that a plain Trainer script does not have.
_TRL_ONLY = (
    "max_completion_length",
    "num_generations",
    "beta",
    "use_vllm",
    "use_peft",
    "dataset_text_field",
    "packing",
    "max_prompt_length",
)
_SCRIPTS = re.compile(r"(?:train_)?(sft|dpo|grpo|kto|orpo|ppo|reward|rloo|cpo)(?:_[a-z0-9_]+)?")
# transformers' own examples (examples/pytorch)
_HF_SCRIPTS = re.compile(r"run_[a-z0-9_]+(?:_no_trainer)?")


def read_cli(context: Context, verb: str, words: list[Argument]) -> list[Run]:
    """`trl sft ...`, or its script behind a launcher; --config sets what the command line does not."""
    fields = hf_arguments(context, words)
    config = fields.pop("config", None)
    if config is not None:
        fields = {**_config(context, str(config.value)), **fields}
    return [read_fields(context, fields, objective=OBJECTIVES.get(verb))]


def _config(context: Context, name: str) -> dict[str, Value]:
    found = context.file_text(name)
    if found is None:
        context.launch.skip(f"--config {name}", matters=True)
        context.launch.need(f"the file {name}", "is not here; options stand in it")
        return {}
    documents = read_yaml(found[0], form="trl", first_line=found[1])
    context.launch.note(f"the command line wins over {name}")
    return map_fields(as_map(documents[0] if documents else None), found[2])


def is_trainer_script(stem: str) -> bool:
    """A script that goes by the name of transformers' or TRL's own examples."""
    return bool(_SCRIPTS.fullmatch(stem) or _HF_SCRIPTS.fullmatch(stem))


def read_script(context: Context, stem: str, fields: dict[str, Value]) -> Run:
    """A script with the Trainer's arguments: transformers' examples, TRL's by name, others by their fields."""
    scripted = _SCRIPTS.fullmatch(stem)
    config = fields.pop("config", None)
    if config is not None:
        fields = {**_config(context, str(config.value)), **fields}
    if scripted or (not _HF_SCRIPTS.fullmatch(stem) and any(name in fields for name in _TRL_ONLY)):
        return read_fields(context, fields, objective=OBJECTIVES.get(scripted[1]) if scripted else _objective(fields))
    run = read_fields(context, fields, framework="transformers")
    if stem.startswith("run_clm"):
        run.plan.defaults["max-seq-length"] = 1024  # examples/pytorch/language-modeling: block_size
    return run


def _objective(fields: dict[str, Value]) -> str | None:
    if "max_completion_length" in fields or "num_generations" in fields:
        return "grpo"
    return None


def read_fields(
    context: Context, fields: dict[str, Value], *, framework: str = "trl", objective: str | None = None
) -> Run:
    """A run of the fields of ModelConfig, ScriptArguments and the trainer's config."""
    run = Run(context, framework)
    run.fields.update(fields)
    model = fields.get("model_name_or_path") or fields.get("model_name")
    put_model(context, run, model)
    if objective is not None:
        run.fields["objective"] = Value(objective, model.line if model else 1, context.file)
    if framework == "trl" and context.versions.get("trl"):
        run.plan.version, run.plan.version_source = context.versions["trl"]
    if framework == "transformers" and context.versions.get("transformers"):
        run.plan.version, run.plan.version_source = context.versions["transformers"]
    named = fields.get("accelerate_config")
    if named is not None:
        _named_accelerate(context, run, named)
    if framework == "transformers" and "torch_dtype" not in fields and "dtype" not in fields:
        context.launch.note(
            "the stored dtype is not stated: such scripts load the checkpoint's own with --torch_dtype auto"
            " only, float32"
            " otherwise under transformers before 5"
        )
    return run


def put_model(context: Context, run: Run, model: Value | None) -> None:
    """The model of a run; it is asked for where there is none."""
    if "model" in context.settings.values:
        run.plan.model, run.plan.model_source = context.settings.values["model"], "--set"
        return
    if model is None or not isinstance(model.value, str) or not model.value:
        if not any(need.startswith("model") or "model" in need for need in context.launch.needs):
            context.launch.need("model", "none is stated", settle="model")
        return
    text = model.value.rstrip("/") or model.value
    run.plan.model, run.plan.model_at = text, model
    if text in context.downloads:
        run.plan.model, run.plan.model_source = context.downloads[text], f"downloaded to {text}"
        return
    cached = re.search(r"models--([^/]+)--([^/]+)", text)
    if cached:
        run.plan.model = f"{cached[1]}/{cached[2]}"
    elif re.match(r"\.{0,2}/|~|[A-Za-z]:\\|\$", text) or "://" in text:
        context.launch.need("model", f"{text} is not here", settle="model")


def _named_accelerate(context: Context, run: Run, named: Value) -> None:
    """TRL's accelerate_config: a bundled name (8 processes unless said) or a file."""
    name = str(named.value)
    known = shipped_files()["trl"]
    if name in known:
        for setting in known[name].split():
            key, _, value = setting.partition("=")
            if value != "ddp":
                run.put(key, value, named)
        processes = run.number("num_processes")
        number = 1 if name == "single_gpu" else processes.value if processes is not None else 8
        run.processes = number
        run.fields["processes"] = processes or named
        if processes is None and number == 8:
            context.launch.note(
                f"accelerate_config {name} is TRL's own file, which starts 8 processes unless num_processes"
                " says otherwise"
            )
        return
    found = context.file_text(name)
    if found is None:
        context.launch.skip(f"accelerate_config {name}", matters=True)
        context.launch.need(
            f"the accelerate file {name}", "is not here; it says how the run is spread", settle="sharding"
        )
        return
    documents = read_yaml(found[0], form="accelerate", first_line=found[1])
    apply_accelerate(run, map_fields(as_map(documents[0] if documents else None), found[2]), from_file=True)


def read_yaml_file(context: Context, config: Map) -> Run:
    """A YAML file of Trainer or TRL arguments by itself; the objective is that of the command that takes it."""
    fields = map_fields(config, context.file)
    plain = not any(name in fields for name in (*_TRL_ONLY, "load_in_4bit", "lora_r", "max_length", "dataset_name"))
    run = read_fields(context, fields, framework="transformers" if plain else "trl", objective=_objective(fields))
    context.launch.note("a command line given with the file would win over it; the trainer is that of the command")
    if run.processes is None:
        context.launch.note("the number of GPUs is that of the launch, not in the file: one is planned")
    return run
