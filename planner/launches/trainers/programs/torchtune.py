"""torchtune's recipes and `tune run RECIPE --config FILE key=value` (torchtune 0.6.1)."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Any

from planner.launches.context import Context
from planner.launches.documents import Map, Seq, as_map, at_path, read_yaml
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument
from planner.launches.trainers.arguments import flag_words, overrides
from planner.launches.trainers.fields import DTYPES
from planner.launches.trainers.launchers_of_tune import spread_of
from planner.launches.trainers.recipe import Run

_OUTPUT = {"output_proj": "o_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_OPTIMISERS = {
    ("torch.optim.AdamW", True): "adamw_torch_fused",
    ("torch.optim.AdamW", False): "adamw_torch",
    ("bitsandbytes.optim.AdamW8bit", False): "adamw_bnb_8bit",
    ("bitsandbytes.optim.PagedAdamW8bit", False): "paged_adamw_8bit",
    ("bitsandbytes.optim.PagedAdamW", False): "paged_adamw_32bit",
    ("torch.optim.SGD", False): "sgd",
    ("torchao.optim.AdamW8bit", False): "adamw_torch_8bit",
    ("torchao.optim.AdamW4bit", False): "adamw_torch_4bit",
    ("torchao.prototype.low_bit_optim.AdamW8bit", False): "adamw_torch_8bit",
    ("torchao.prototype.low_bit_optim.AdamW4bit", False): "adamw_torch_4bit",
}
_CHUNKED = ("CEWithChunkedOutputLoss", "LinearCrossEntropyLoss", "ForwardKLWithChunkedOutputLoss")
_INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")


def read_cli(context: Context, words: list[Argument]) -> list[Run]:
    """`tune run [torchrun's options] RECIPE --config FILE key=value`."""
    options, rest, _ = flag_words(words, ("--standalone",))
    if not rest:
        return []
    runs = read_recipe(context, rest[0].text, rest[1:])
    processes, nodes = spread_of(options)
    for run in runs:
        if processes is not None:
            run.processes = processes * nodes
            run.plan.nodes = nodes
            run.fields["processes"] = Value(processes * nodes, words[0].line, context.file)
        elif "distributed" not in rest[0].text:
            run.plan.gpus = 1
        _recipe_sharding(run, rest[0].text, rest[0].line)
    return runs


def read_recipe(context: Context, recipe: str, words: list[Argument]) -> list[Run]:
    """A recipe with its --config and overrides."""
    options, rest, _ = flag_words(words, ())
    over = overrides(context, rest)
    name = options["config"].text if "config" in options else ""
    found = context.file_text(name) if name else None
    if found is None:
        context.launch.skip(f"--config {name}", matters=True)
        context.launch.need(f"the config {name}", "is not here (torchtune's own ones are not shipped with the planner)")
        run = read_config(context, Map(), over)
    else:
        documents = read_yaml(found[0], form="torchtune", first_line=found[1])
        run = read_config(context, as_map(documents[0] if documents else None), over, file=found[2])
    run.plan.gpus = None
    return [run]


def _recipe_sharding(run: Run, recipe: str, line: int) -> None:
    if "distributed" in recipe and (run.processes or 2) > 1:
        run.put("sharding", "fsdp2", line, how="the recipe's name")


def read_config(context: Context, config: Map, over: dict[str, Value] | None = None, *, file: str | None = None) -> Run:
    """The run that a config describes; which recipe runs it is not in the file."""
    run = Run(context, "torchtune", file=file)
    for name, value in (over or {}).items():
        _override(config, name, value)
    run.states_method = True
    model = as_map(config.get("model"))
    component = str(model.get("_component_") or "")
    builder = component.rsplit(".", 1)[-1]
    _model(context, run, config, component, builder)
    line = model.line_of("_component_")

    def at(path: str) -> Value | None:
        head, _, last = path.rpartition(".")
        node = at_path(config, head) if head else config
        if not isinstance(node, Map) or node.get(last) is None:
            return None
        return Value(_filled(config, node[last]), node.line_of(last), run.file)

    run.adapters = builder.startswith(("lora_", "qlora_", "dora_")) or "lora_rank" in model
    if run.adapters:
        method = "qlora" if builder.startswith("qlora_") or model.get("quantize_base") is True else "lora"
        if model.get("use_dora") is True:
            method = "qdora" if method == "qlora" else "dora"
        run.fields["method"] = Value(method, line, run.file)
        if method.startswith("q"):
            run.put("base-quantization", "torchao-nf4", line)
        _targets(run, model)
    for name, field in (
        ("batch_size", "per_device_train_batch_size"),
        ("gradient_accumulation_steps", "gradient_accumulation_steps"),
        ("tokenizer.max_seq_len", "max_length"),
        ("model.lora_rank", "lora_r"),
        ("model.lora_dropout", "lora_dropout"),
        ("dtype", "dtype"),
        ("enable_activation_checkpointing", "gradient_checkpointing"),
        ("enable_activation_offloading", "activation_offloading"),
        ("fsdp_cpu_offload", "offload_parameters"),
        ("dataset.packed", "packing"),
        ("tensor_parallel_dim", "tensor_parallel_size"),
    ):
        stated = at(name)
        if stated is not None and not (name == "fsdp_cpu_offload" and stated.value is False):
            run.fields[field] = stated
    if at("tokenizer.max_seq_len") is None:
        context.launch.need(
            "sequence length",
            "tokenizer.max_seq_len is null: the longest sample of a batch decides",
            settle="tokenizer.max_seq_len",
        )
    compiled = at("compile")
    if compiled is not None and isinstance(compiled.value, bool):
        run.put("torch-compile", compiled.value, compiled)
    _optimiser_and_loss(run, config)
    if DTYPES.get(str(config.get("dtype"))) and run.plan.get("autocast") is None:
        run.states_method = True
    in_backward = at("optimizer_in_bwd")
    if in_backward is not None and in_backward.value is True:
        run.put("optimizer-in-backward", True, in_backward)
    if over is None:
        context.launch.note(
            "the file does not say which recipe runs it, single device or distributed: one GPU is planned"
        )
        run.plan.gpus = 1
    return run


def _filled(config: Map, value: Any) -> Any:
    """A value with ${a.b} of the same file put in, once."""
    if isinstance(value, str) and "${" in value:
        whole = _INTERPOLATION.fullmatch(value)
        if whole:
            return at_path(config, whole[1])
        return _INTERPOLATION.sub(lambda m: str(at_path(config, m[1]) or m[0])[:500], value)
    return value


def _override(config: Map, name: str, value: Value) -> None:
    parts = name.split(".")[:10]
    node = config
    for part in parts[:-1]:
        below = node.get(part)
        if not isinstance(below, Map):
            below = Map(value.line)
            node[part] = below
        node = below
    node[parts[-1]] = value.value
    node.lines[parts[-1]] = value.line


def _targets(run: Run, model: Map) -> None:
    listed = model.get("lora_attn_modules")
    if listed is None:
        return
    found = [_OUTPUT.get(str(one), str(one)) for one in listed] if isinstance(listed, Seq | list) else []
    if model.get("apply_lora_to_mlp") is True:
        found += ["gate_proj", "up_proj", "down_proj"]
    if model.get("apply_lora_to_output") is True:
        found.append("lm_head")
    run.put("lora-target-modules", found, model.line_of("lora_attn_modules"))


def _optimiser_and_loss(run: Run, config: Map) -> None:
    optimiser = as_map(config.get("optimizer"))
    component = str(optimiser.get("_component_") or "")
    fused = optimiser.get("fused") is True
    known = _OPTIMISERS.get((component, fused)) or _OPTIMISERS.get((component, False))
    if known is not None:
        run.put("optim", known, optimiser.line_of("_component_"))
    elif component:
        run.context.launch.skip(f"optimizer {component[:60]}", matters=True)
    loss = str(as_map(config.get("loss")).get("_component_") or "")
    if loss.rsplit(".", 1)[-1] in _CHUNKED:
        run.put("loss", "chunked", as_map(config.get("loss")).line_of("_component_"))


@cache
def _builders() -> tuple[dict[str, str], ...]:
    text = files("planner.launches.tables").joinpath("torchtune_models.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _model(context: Context, run: Run, config: Map, component: str, builder: str) -> None:
    """There is no Hub id: the builder names the architecture, the checkpoint folder the variant."""
    if "model" in context.settings.values:
        run.plan.model, run.plan.model_source = context.settings.values["model"], "--set"
        return
    bare = re.sub(r"^(?:q?lora|dora)_", "", builder)
    folder = str(_filled(config, as_map(config.get("checkpointer")).get("checkpoint_dir")) or "")
    last = folder.rstrip("/").rsplit("/", 1)[-1]
    line = as_map(config.get("model")).line_of("_component_")
    for row in _builders():
        if row["builder"] != bare:
            continue
        instruct = bool(re.search(r"instruct|[-_]it\b|chat", last, re.IGNORECASE))
        name = row["instruct"] if instruct and row["instruct"] else row["model"]
        run.plan.model, run.plan.model_source = (
            name,
            "component name and checkpoint folder" if last else "component name",
        )
        run.plan.model_at = Value(name, line, run.file, "component name")
        return
    if component:
        context.launch.need("model", f"the builder {builder[:60]} has no row", settle="model")
    else:
        context.launch.need("model", "no model._component_ is stated", settle="model")
