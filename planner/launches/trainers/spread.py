"""How a run is spread over GPUs: FSDP words and DeepSpeed configs (transformers 5.24, deepspeed 0.18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.launches.trainers.recipe import Run

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.launches.documents import Map, as_map, read_json
from planner.launches.record import Value

_STAGE_IN_NAME: Final = re.compile(r"z(?:ero)?[_-]?(?:stage[_-]?)?([0-3])(?![0-9])", re.IGNORECASE)


def put_sharding(run: Run) -> None:
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
