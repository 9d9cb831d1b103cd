"""Where a server's model lies, how many GPUs it gets, and what its container gives it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.launches.around import device_count
from planner.launches.context import Context, Surroundings
from planner.launches.record import LaunchPlan, Value
from planner.launches.shell.expansion import Argument, Variable

PARALLEL: Final = {
    "vllm": ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
    "sglang": ("tp-size", "pp-size", "dp-size"),
    "tensorrt-llm": ("tp_size", "pp_size"),
}


_LOCAL: Final = re.compile(r"(?:\.{0,2}/|~|[A-Za-z]:\\|\$|%)")


_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def settle_model(context: Context, plan: LaunchPlan, word: Argument | None, around: Surroundings) -> bool:
    """Put the model into the plan; False when there is none (then it is asked for).

    A path is followed to where the source says that it came from: a mount, a download, an earlier container.
    """
    if "model" in context.settings.values:
        plan.model, plan.model_source = context.settings.values["model"], "--set"
        return True
    if word is None or not word.text:
        context.launch.need("model", "none is stated", settle="model")
        return False
    if word.missing:
        for name in word.missing:
            context.launch.need(
                "model", f"{name} has no value in the text", settle=name if name.isidentifier() else "model"
            )
        plan.model_at = Value(None, word.line, context.file, word.how)
        return True
    text = word.text.rstrip("/") if len(word.text) > 1 else word.text
    plan.model_at = Value(text, word.line, context.file, word.how)
    plan.model = text
    for scheme in ("hf://", "huggingface://", "hf.co/"):
        if text.startswith(scheme) and plan.tool != "ollama":
            plan.model = text.removeprefix(scheme)
    if text in around.models or text in context.downloads:
        plan.model = around.models.get(text) or context.downloads[text]
        plan.model_source = around.model_sources.get(text, f"downloaded to {text}")
        if "://" in plan.model:
            context.launch.need("model", f"{plan.model} is not here: it is mounted at {text}", settle="model")
        return True
    for inside, outside in around.mounts.items():
        if text == inside or text.startswith(inside + "/"):
            plan.model = outside + text[len(inside) :]
            plan.model_source = f"mounted at {inside}"
            cached = re.search(r"models--([^/]+)--([^/]+)", plan.model)
            if cached:
                plan.model = f"{cached[1]}/{cached[2]}"
                return True
    cached = re.search(r"models--([^/]+)--([^/]+)", plan.model)
    if cached:
        plan.model = f"{cached[1]}/{cached[2]}"
        plan.model_source = "the Hub's cache folder"
    elif _LOCAL.match(plan.model) or "://" in plan.model:
        kind = "the GGUF file " if plan.model.endswith(".gguf") else ""
        context.launch.need("model", f"{kind}{plan.model} is not here{_hint(plan.model)}", settle="model")
    return True


def _hint(path: str) -> str:
    name = re.split(r"[/\\]", path)[-1][:80]
    said = re.findall(r"\d+(?:\.\d+)?[xX]?\d*[bB](?![a-z])|I?Q\d\w*|[fF]16|AWQ|GPTQ|FP8", name)
    return f"; the name says {', '.join(said)}, which is a hint only" if said else ""


def settle_gpus(context: Context, plan: LaunchPlan, around: Surroundings, environment: Mapping[str, Variable]) -> None:
    """The number of cards of one replica: what is stated, else what the parallel sizes need."""
    needed = 1
    for name in PARALLEL.get(plan.tool, ()):
        value = plan.get(name, 1)
        needed *= value if isinstance(value, int) and value > 0 else 1
    if plan.tool == "sglang" and plan.get("enable-dp-attention"):
        needed //= max(1, plan.get("dp-size", 1))
    stated, device = around.gpus, around.device
    unknown = around.gpus_unknown
    sizes_open = any(name in plan.open for name in PARALLEL.get(plan.tool, ()))
    for name in _VISIBLE:
        variable = environment.get(name)
        if variable is not None and not variable.missing:
            count, ids = device_count(variable.text)
            if count is not None and (around.gpus is None or name != "NVIDIA_VISIBLE_DEVICES"):
                stated, device, unknown = count, ids, False
                break
            unknown = unknown or (variable.text.strip().lower() == "all" and around.gpus is None)
    plan.device = plan.device or device
    plan.sees_all = unknown and stated is None
    if device is not None and plan.card is None:
        context.launch.note(f"the card itself is not stated, only device ids {device}")
    plan.gpus_stated = stated is not None
    several = around.nodes is not None and around.nodes > 1
    if stated is not None:
        plan.gpus = stated
        if stated > needed and plan.tool in PARALLEL and not several and not sizes_open:
            context.launch.note(f"{stated} GPUs are stated and the server uses {needed}: {stated - needed} stay idle")
        if stated < needed and not sizes_open and not several and not around.group_gpus:
            raise_fewer(context, plan, stated, needed)
    elif sizes_open:
        plan.gpus = None
    elif unknown:
        plan.gpus = None
        context.launch.note(f"the number of cards is not stated (all); the server uses {needed}")
    else:
        plan.gpus = needed if plan.tool in PARALLEL else None


def raise_fewer(context: Context, plan: LaunchPlan, stated: int, needed: int) -> None:
    """Fewer GPUs than the parallel sizes need: the server does not start."""
    plan.gpus = stated
    context.launch.error = (
        f"{plan.name or plan.tool}: the parallel sizes need {needed} GPUs and only {stated} "
        f"{'is' if stated == 1 else 'are'} given to it"
    )


def say_shared_memory(context: Context, plan: LaunchPlan, *, contained: bool) -> None:
    """Several GPUs in a container without shared memory: NCCL stops at docker's and Kubernetes' 64 MiB."""
    host = plan.host
    shared = bool(host.get("ipc_host"))
    if shared and "shm_bytes" in host:
        context.launch.note("with --ipc=host (ipc: host) the --shm-size value has no effect")
    if contained and (plan.gpus or 1) > 1 and not shared and "shm_bytes" not in host:
        context.launch.note(
            f"{plan.gpus} GPUs in a container with the default 64 MiB of shared memory (shm): NCCL over several GPUs"
            " fails without ipc: host or a shm size"
        )
    limit = host.get("memory_limit_bytes")
    if limit and not shared and "shm_bytes" in host:
        context.launch.note("the shm volume is charged to the container's memory limit")
    buffer = host.get("kv_offload_bytes")
    if buffer and limit:
        context.launch.note("the offloading buffer is host memory and is charged to the container's memory limit")
