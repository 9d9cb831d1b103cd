"""The replay's script for a plan on one GPU: weights as they are loaded, a step's traces, the optimizer's states."""

from __future__ import annotations

from dataclasses import replace

from planner.memory.allocator import SMALL_SIZE
from planner.training.allocator.replay import Loaded, Script, Units
from planner.training.recipe import DTYPES, Recipe, kernels
from planner.training.sharding.sharding import accelerate_upcasts, data_ranks, holds_backward, root_bytes, unit_bytes
from planner.training.states.inventory import Inventory
from planner.training.states.states import States
from planner.training.step.segments import gradients_wait
from planner.training.step.step import StepMemory
from planner.training.tape.profiles import Trace


def script_of(
    found: Inventory,
    states: States,
    step: StepMemory,
    recipe: Recipe,
    workspace_bytes: int,
    weights_bytes: int = 0,
    optimizer_bytes: int = 0,
) -> Script | None:
    """What a step asks for; None where a step's order is not known (several GPUs, parts of checkpoints)."""
    partial = recipe.checkpoint_every > 1 or recipe.checkpoint_policy == "selective"
    if partial or not step.layers or recipe.activation_offload:
        return None
    fsdp = recipe.sharding in ("fsdp", "fsdp2") and recipe.tensor_parallel_size * recipe.pipeline_parallel_size == 1
    if recipe.num_gpus > 1 and not fsdp:
        return None
    stored = DTYPES[recipe.dtype or "bfloat16"]
    loaded = []
    for tensor, count in found.all():
        pieces = tuple(tensor.format.pieces(tensor.shape, tensor.tensor.input_dim))
        packed = tensor.storage == "dequantised"
        widened = recipe.prepare_kbit and tensor.storage == "plain" and stored < tensor.width
        one = Loaded(
            arriving=stored * tensor.numel if packed else 0,
            kept=(stored * tensor.numel,) if widened else pieces,
            replaced_by=sum(pieces) if widened else 0,
        )
        loaded += [one] * count
    own = [tensor for tensor in states.trained for _ in range(tensor.count)]
    loaded += [Loaded(0, (tensor.weight_bytes,)) for tensor in own if "lora_" in tensor.name or "saved" in tensor.name]
    on_card = [t for t in own if not states.optimizer.pages(t.numel)]
    made = [size for t in on_card for size in (*t.state_bytes, t.master_bytes) if size]
    if gradients_wait(recipe):
        made += [t.gradient_bytes for t in own]  # they stay from the first step on, and the tape adds to them
    temporary: list[int] = []
    if states.optimizer.step == "foreach" and not kernels(recipe).get("fused_optimizer"):
        temporary = [t.numel * (4 if t.master_bytes else t.width) for t in own]
    elif states.optimizer.step != "foreach":
        temporary = [states.step_temporary_bytes()] if states.step_temporary_bytes() else []
    half = workspace_bytes // 2
    made_large: dict[int, Trace] = {}
    layers = [made_large.get(id(trace)) or made_large.setdefault(id(trace), _large(trace)) for trace in step.layers]
    units = None
    if fsdp:
        ranks = data_ranks(recipe)
        upcast = 2 if accelerate_upcasts(recipe) else 1
        units = Units(
            layers=unit_bytes(found, recipe),
            root=root_bytes(found, recipe),
            ranks=ranks,
            upcast=upcast,
            holds_backward=holds_backward(recipe),
        )
        loaded = _sharded_weights(units, weights_bytes)
        made = [-(-size // ranks) for size in made]
        scale = optimizer_bytes / max(1, sum(made))
        made = [int(size * scale) for size in made]
        temporary = [-(-size * upcast // ranks) for size in temporary]
    return Script(
        loaded=loaded,
        workspaces=(half, workspace_bytes - half),
        stream=step.stream_bytes,
        shared=(step.shared_bytes,),
        layers=layers,
        head=step.head and _large(step.head),
        checkpointed=bool(recipe.gradient_checkpointing),
        reentrant=step.reentrant,
        states=made,
        step=temporary,
        embedding_gradient=step.embedding_gradient_bytes,
        sharded=units,
    )


def _sharded_weights(units: Units, weights_bytes: int) -> list[Loaded]:
    """This rank's share of every unit, which arrives whole.

    A GPTQ model is no exception: under FSDP it is read into host memory first (fms_acceleration_peft
    gptqmodel/models/base.py from_quantized, low_cpu_mem_usage: device_map {"": "cpu"}).
    """
    whole = [*units.layers, units.root]
    total = sum(whole)
    return [Loaded(size, (weights_bytes * size // total,)) for size in whole]


def _large(trace: Trace) -> Trace:
    """The trace without requests that the small pool serves, which are many and come to little."""
    small = {number for number, size in (*trace.forward, *trace.backward) if 0 <= size <= SMALL_SIZE}
    plain = {number for number, size in trace.plain if 0 <= size <= SMALL_SIZE}
    small.discard(trace.out)
    plain.discard(trace.plain_out)
    forward = tuple(event for event in trace.forward if event[0] not in small)
    return replace(
        trace,
        forward=forward,
        needed=sum(event[0] not in small for event in trace.forward[: trace.needed]),
        between=tuple(event for event in trace.between if event[0] not in small),
        backward=tuple(event for event in trace.backward if event[0] not in small),
        plain=tuple(event for event in trace.plain if event[0] not in plain),
    )
