"""Axolotl's YAML and `axolotl train FILE --key value` (axolotl 0.19: utils/schemas)."""

from __future__ import annotations

from typing import Any

from planner.launches.context import Context
from planner.launches.documents import Map, as_map, read_yaml
from planner.launches.record import Value
from planner.launches.shell.expansion import Argument
from planner.launches.trainers.arguments import hf_arguments, map_fields
from planner.launches.trainers.programs.trl import put_model
from planner.launches.trainers.recipe import Run

_RENAMED = {
    "micro_batch_size": "per_device_train_batch_size",
    "lora_r": "lora_r",
    "sequence_len": "max_length",
    "optimizer": "optim",
    "dp_shard_size": "dp_shard_size",
}
_ATTENTION = {
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "flex_attention": "flex_attention",
    "eager_attention": "eager",
}
_RL = {"dpo": "dpo", "ipo": "dpo", "orpo": "orpo", "kto": "kto", "simpo": "orpo", "grpo": "grpo", "gdpo": "grpo"}


def read_cli(context: Context, words: list[Argument]) -> list[Run]:
    """`axolotl train FILE --key value`: what stands behind the file wins over it."""
    name = next((word.text for word in words if not word.text.startswith("-")), "")
    fields = hf_arguments(context, words[1:] if words and words[0].text == name else words)
    found = context.file_text(name)
    if found is None:
        context.launch.skip(f"the file {name}", matters=True)
        context.launch.need(f"the file {name}", "is not here; model and options stand in it")
        config = Map()
        run = read_config(context, config, fields, file=name)
    else:
        documents = read_yaml(found[0], form="axolotl", first_line=found[1])
        run = read_config(context, as_map(documents[0] if documents else None), fields, file=found[2])
    processes = fields.get("num_processes") or fields.get("nproc_per_node")
    if processes is not None and str(processes.value).isdecimal():
        run.processes = int(processes.value)
        run.fields["processes"] = processes
    return [run]


def read_config(context: Context, config: Map, over: dict[str, Value] | None = None, *, file: str | None = None) -> Run:
    """The run that an Axolotl file describes."""
    run = Run(context, "axolotl", file=file)
    stated = {**map_fields(config, run.file), **(over or {})}
    fields = {_RENAMED.get(name, name): value for name, value in stated.items()}
    adapter = stated.get("adapter")
    kind = str(adapter.value).lower() if adapter is not None and adapter.value else ""
    run.adapters = kind in ("lora", "qlora", "dora")
    if not run.adapters and kind:
        context.launch.need("adapter", f"{kind} is not read", settle="method")
    put_model(context, run, stated.get("base_model"))
    for name, attention in _ATTENTION.items():
        if name in stated and str(stated[name].value).lower() == "true":
            fields["attn_implementation"] = Value(attention, stated[name].line, stated[name].file)
    rl = stated.get("rl")
    if rl is not None and rl.value:
        objective = _RL.get(str(rl.value).lower())
        if objective is not None:
            fields["objective"] = Value(objective, rl.line, rl.file)
        else:
            context.launch.need("rl", f"{rl.value} is not read", settle="objective")
    fields.pop("dp_shard_size", None)
    run.fields.update(fields)
    if kind == "lora" and str(getattr(stated.get("peft_use_dora"), "value", "")).lower() == "true":
        run.fields["use_dora"] = stated["peft_use_dora"]
    bnb = stated.get("bnb_config_kwargs")
    if bnb is not None and isinstance(bnb.value, dict):
        for key, value in bnb.value.items():
            run.fields[str(key)] = Value(value, bnb.line, bnb.file)
    bfloat = stated.get("bfloat16")
    if bfloat is not None and bfloat.value is True:
        run.fields["dtype"] = Value("bfloat16", bfloat.line, bfloat.file)
    if str(getattr(stated.get("activation_offloading"), "value", "")).lower() == "true":
        run.fields["activation_offloading"] = Value(
            True, stated["activation_offloading"].line, stated["activation_offloading"].file
        )
    _plugins(run, stated)
    _parallel(run, stated)
    if over is None:
        context.launch.note("the number of GPUs is not in the file: it is that of the launch; one is planned")
    return run


def _plugins(run: Run, stated: dict[str, Value]) -> None:
    plugins = stated.get("plugins")
    listed: list[Any] = plugins.value if plugins is not None and isinstance(plugins.value, list) else []
    if plugins is not None and any("cut_cross_entropy" in str(one) for one in listed):
        run.put("loss", "cce", plugins)
    for name in ("liger_fused_linear_cross_entropy", "cut_cross_entropy"):
        if str(getattr(stated.get(name), "value", "")).lower() == "true":
            run.put("loss", "liger" if name.startswith("liger") else "cce", stated[name])
    for name in (
        "lora_mlp_kernel",
        "lora_qkv_kernel",
        "lora_o_kernel",
        "unsloth_cross_entropy_loss",
        "chunked_cross_entropy",
    ):
        if name in stated and str(stated[name].value).lower() == "true":
            run.context.launch.note(f"{name} changes what is kept for backward: it is not an input here")


def _parallel(run: Run, stated: dict[str, Value]) -> None:
    shard = stated.get("dp_shard_size")
    if shard is not None and isinstance(shard.value, int) and shard.value > 1:
        run.fields.setdefault("fsdp_version", Value(2, shard.line, shard.file))
        run.put("sharding", "fsdp2", shard)
    config = stated.get("fsdp_config")
    if config is not None and "fsdp" not in stated and isinstance(config.value, dict):
        version = stated.get("fsdp_version")
        two = version is not None and str(version.value) == "2"
        run.put("sharding", "fsdp2" if two or as_map(config.value).get("fsdp_version") == 2 else "fsdp", config)
