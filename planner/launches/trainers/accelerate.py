"""accelerate's file and flags: how a run is spread, never what is trained (accelerate 1.15, utils/dataclasses.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.launches.context import Context
from planner.launches.documents import Map, as_map
from planner.launches.record import Value
from planner.launches.trainers.fields import SETTLES
from planner.launches.trainers.recipe import Run
from planner.launches.trainers.spread import apply_deepspeed, json_value

_STRATEGIES = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}


def read_accelerate(context: Context, config: Map) -> Run:
    """A run of which only the spread is known: model, batch, length and method are asked for."""
    run = Run(context, "transformers")
    run.states_method = False
    fields = {str(key): Value(value, config.line_of(key), context.file) for key, value in config.items()}
    apply_accelerate(run, fields, from_file=True)
    for name in ("model", "batch size", "sequence length", "method"):
        context.launch.need(name, "an accelerate file never says it", settle=SETTLES[name])
    return run


def apply_accelerate(run: Run, fields: Mapping[str, Value], *, from_file: bool) -> None:
    """Processes, precision and sharding of an accelerate file, or of the flags of `accelerate launch`."""
    processes = fields.get("num_processes")
    machines = fields.get("num_machines")
    nodes = _whole(machines)
    if nodes and nodes > 1:
        run.plan.nodes = nodes
    number = _whole(processes)
    if number is not None and number > 0 and processes is not None:
        run.processes = number
        run.fields["processes"] = Value(number, processes.line, processes.file)
        if from_file and nodes and nodes > 1:
            run.context.launch.note(f"num_processes is the total of all machines: {number // nodes} a machine")
    mixed = fields.get("mixed_precision")
    if mixed is not None and "mixed_precision" not in run.fields:
        run.fields["mixed_precision"] = mixed
    kind = str(fields["distributed_type"].value).upper() if "distributed_type" in fields else ""
    if kind == "FSDP" or _on(fields.get("use_fsdp")):
        _fsdp(run, fields)
    elif kind == "DEEPSPEED" or _on(fields.get("use_deepspeed")):
        _deepspeed(run, fields)
    elif kind in ("MEGATRON_LM", "TP"):
        run.context.launch.need("sharding", f"distributed_type {kind} is not read", settle="sharding")
    parallel = fields.get("parallelism_config")
    if parallel is not None and isinstance(parallel.value, dict):
        _parallelism(run, as_map(parallel.value), parallel)
    dynamo = as_map(fields["dynamo_config"].value) if "dynamo_config" in fields else Map()
    if str(dynamo.get("dynamo_backend", "no")).lower() not in ("no", "false", "none"):
        run.put("torch-compile", True, fields["dynamo_config"])


def _on(value: Value | None) -> bool:
    return value is not None and str(value.value).lower() in ("true", "1", "yes")


def _whole(value: Value | None) -> int | None:
    if value is None or not re.fullmatch(r"-?\d{1,6}", str(value.value)):
        return None
    return int(value.value)


def _fsdp(run: Run, fields: Mapping[str, Value]) -> None:
    config = as_map(fields["fsdp_config"].value) if "fsdp_config" in fields else Map()

    def get(name: str) -> Any:
        if name in fields:
            return fields[name].value
        return config.get(name, config.get(name.removeprefix("fsdp_")))

    at = (
        fields.get("fsdp_config")
        or fields.get("use_fsdp")
        or fields.get("distributed_type")
        or Value(None, 1, run.file)
    )

    def place(name: str) -> Value:
        return Value(None, config.line_of(name), at.file) if name in config else fields.get(name, at)

    version = str(get("fsdp_version") or 1)
    strategy = str(get("fsdp_sharding_strategy") or "")
    strategy = _STRATEGIES.get(strategy, strategy).upper()
    reshard = get("fsdp_reshard_after_forward")
    if version == "2":
        sharding = "fsdp2" if str(reshard).lower() not in ("false", "0") else "zero2"
    elif strategy.startswith("HYBRID_SHARD") or str(reshard).upper().startswith("HYBRID_SHARD"):
        sharding = "hsdp"
    elif "SHARD_GRAD_OP" in (strategy, str(reshard).upper()):
        sharding = "zero2"
    elif "NO_SHARD" in (strategy, str(reshard).upper()):
        sharding = "ddp"
    else:
        sharding = "fsdp"
    if version == "2" and sharding == "zero2":
        run.context.launch.note(
            "fsdp_reshard_after_forward false keeps the weights whole after the forward, as ZeRO-2 does"
        )
    run.put("sharding", sharding, place("fsdp_version") if version == "2" else at)
    offload = get("fsdp_offload_params")
    if offload is not None:
        on = str(offload).lower() in ("true", "1", "yes")
        run.put("offload-parameters", on, place("fsdp_offload_params"))
    checkpointing = get("fsdp_activation_checkpointing")
    if checkpointing is not None and "gradient_checkpointing" not in run.fields:
        on = str(checkpointing).lower() in ("true", "1", "yes")
        if on:
            run.put("gradient-checkpointing", True, place("fsdp_activation_checkpointing"))
    loading = get("fsdp_cpu_ram_efficient_loading")
    if loading is not None and str(loading).lower() in ("false", "0"):
        run.context.launch.note(
            "fsdp_cpu_ram_efficient_loading false: every process loads the whole model into host memory"
        )


def _deepspeed(run: Run, fields: Mapping[str, Value]) -> None:
    config = as_map(fields["deepspeed_config"].value) if "deepspeed_config" in fields else Map()

    def get(name: str) -> Any:
        return fields[name].value if name in fields else config.get(name)

    at = (
        fields.get("deepspeed_config")
        or fields.get("use_deepspeed")
        or fields.get("distributed_type")
        or Value(None, 1, run.file)
    )
    named = get("deepspeed_config_file")
    if named:
        found = json_value(run, str(named))
        if found is None:
            run.context.launch.skip(f"deepspeed_config_file {named}", matters=True)
            run.context.launch.need(
                f"deepspeed ({named})",
                "the file is not here; the other settings are ignored beside it",
                settle="sharding",
            )
        else:
            apply_deepspeed(run, found, at)
        return
    stage = get("zero_stage")
    stage = 2 if stage is None else stage
    line = config.line_of("zero_stage") if "zero_stage" in config else at.line
    run.put("sharding", f"zero{stage}" if str(stage) != "0" else "ddp", Value(None, line, at.file))
    for key, option in (
        ("offload_optimizer_device", "offload-optimizer"),
        ("offload_param_device", "offload-parameters"),
    ):
        device = get(key)
        if device is not None:
            run.put(
                option,
                str(device).lower() in ("cpu", "nvme"),
                Value(None, config.line_of(key) if key in config else at.line, at.file),
            )
    steps = get("gradient_accumulation_steps")
    if isinstance(steps, int) and "gradient_accumulation_steps" not in run.fields and run.states_method:
        run.fields["gradient_accumulation_steps"] = Value(steps, line, at.file, "accelerate file")
    elif isinstance(steps, int) and not run.states_method:
        run.fields["gradient_accumulation_steps"] = Value(steps, config.line_of("gradient_accumulation_steps"), at.file)


def _parallelism(run: Run, config: Map, at: Value) -> None:
    for key, option in (
        ("parallelism_config_tp_size", "tensor-parallel-size"),
        ("parallelism_config_cp_size", "context-parallel-size"),
    ):
        size = config.get(key)
        if isinstance(size, int) and size > 1:
            run.put(option, size, Value(None, config.line_of(key), at.file))
    shard, replicate = (
        config.get("parallelism_config_dp_shard_size"),
        config.get("parallelism_config_dp_replicate_size"),
    )
    if isinstance(shard, int) and shard > 1:
        run.put("sharding", "hsdp" if isinstance(replicate, int) and replicate > 1 else "fsdp2", at)
        if isinstance(replicate, int) and replicate > 1:
            run.put("shard-group", shard, at)
