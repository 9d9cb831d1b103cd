"""The breakdown of the peak: which part of it is what, with the arithmetic."""

from __future__ import annotations

from planner.contract.component import Component, exact
from planner.model.model import Model
from planner.training.allocator.allocator import Ratio
from planner.training.objectives.objectives import Extra
from planner.training.recipe import DTYPES, Recipe
from planner.training.sharding.sharding import Sharded, data_ranks
from planner.training.states.states import States
from planner.training.step.step import StepMemory


def components(
    model: Model,
    recipe: Recipe,
    states: States,
    step: StepMemory,
    held: Sharded,
    phase: str,
    allocated_bytes: int,
    workspace: int,
    extra: Extra,
) -> tuple[Component, ...]:
    """What is allocated at the peak, by kind; the parts add up to `allocated_bytes`."""
    ranks = data_ranks(recipe)
    over = f" / {ranks}" if ranks > 1 and recipe.sharding not in (None, "none", "ddp") else ""
    found = [
        exact(
            "weights",
            held.weights,
            f"{states.frozen_numel:,} frozen ({states.frozen_bytes:,} B, {recipe.base_quantization} base) +"
            f" {states.trained_numel:,} trained ({states.trained_weight_bytes:,} B){over}",
            "tensor by tensor",
        )
    ]
    if held.optimizer:
        formula = _optimizer_formula(states, recipe) + over
        found.append(exact("optimizer", held.optimizer, formula, states.optimizer.source))
    if recipe.ema:
        found.append(exact("ema", states.trained_numel * 4, f"{states.trained_numel:,} x 4", "an fp32 copy"))
    others = extra.resident_bytes + (held.weights + held.optimizer + held.gradients if extra.critic else 0)
    if others:
        names = [name for name in (extra.other_models, "a value model trained like it" if extra.critic else "") if name]
        formula = f"beside the policy ({recipe.objective}): {', '.join(names)}"
        found.append(_derived("other_models", others, formula, "trl trainers"))
    found.append(_derived("workspace", workspace, "cuBLAS workspace of one handle", "ATen/cuda/CublasHandlePool.cpp"))
    rest = allocated_bytes - sum(part.best for part in found)
    width = f"{states.gradient_bytes // max(1, states.trained_numel)}"
    if phase == "optimizer step":
        gradients = min(held.gradients, rest)
        formula = f"{states.trained_numel:,} x {width}{over}"
        found.append(exact("gradients", gradients, formula, "one gradient a trained weight"))
        rest -= gradients
        found.append(
            _derived(
                "step_temporary", max(0, rest), f"optimizer step: {states.optimizer.step}", states.optimizer.source
            )
        )
    elif phase == "loading":
        found.append(_derived("loading", max(0, rest), "whole weights beside the first shard", "torch FSDP"))
    else:
        saved = min(step.saved_bytes, rest)
        made = rest - saved
        found.append(_derived("saved_activations", saved, _saved_formula(model, recipe, step), _TAPE))
        found.append(_derived(_made_name(phase), made, f"{phase}: logits, recomputed layer, gradients so far", _TAPE))
    return tuple(found)


def fragmentation(allocated_bytes: int, least_bytes: int, reserved_bytes: int, ratio: Ratio) -> Component:
    """What is reserved beyond the allocated, over all phases.

    Args:
        least_bytes: reserved when free blocks are given back before an allocation fails; reserved_bytes: as seen.
        ratio: of the phase that allocates the most.
    """
    return Component(
        name="fragmentation",
        low=0,
        best=least_bytes - allocated_bytes,
        high=reserved_bytes - allocated_bytes,
        evidence="measured",
        formula=f"reserved / allocated {float(ratio.best):.2f} ({float(ratio.low):.2f} to {float(ratio.high):.2f});"
        f" {float(ratio.low):.2f} to {float(ratio.best):.2f} count: free blocks are given back before a failure",
        source=ratio.source,
    )


_TAPE = "tensors saved for backward, block by block (transformers 5.24), compared with live storages of small models"


def _made_name(phase: str) -> str:
    return "logits_and_loss" if phase.startswith("loss") else "working_set"


def _derived(name: str, size: int, formula: str, source: str) -> Component:
    return Component(name=name, low=size, best=size, high=size, evidence="derived", formula=formula, source=source)


def _optimizer_formula(states: States, recipe: Recipe) -> str:
    kinds = " + ".join(states.optimizer.states) or "none"
    master = f" + {states.trained_numel:,} x 4 master" if states.master_bytes else ""
    return f"{states.optimizer.id}: {kinds} over {states.trained_numel:,}{master}"


def _saved_formula(model: Model, recipe: Recipe, step: StepMemory) -> str:
    layers, hidden = len(model.spec.layers), model.spec.hidden_size
    if recipe.gradient_checkpointing:
        each = f"{recipe.tokens:,} tokens x {hidden:,} x {step.stream_width} B"
        place = " (in host memory)" if recipe.activation_offload else ""
        return f"{layers} layers x {each} of checkpointed inputs{place}"
    return f"{layers} layers, up to {step.layer_bytes:,} B each, of {recipe.tokens:,} tokens in {recipe.dtype}"


def bytes_per_parameter(states: States, recipe: Recipe) -> str:
    """The paper arithmetic of the precision recipe: "2 + 2 + 4 + 4 + 4 = 16 bytes a parameter"."""
    numel = max(1, states.trained_numel)
    parts = [DTYPES[recipe.dtype or "bfloat16"] if not recipe.adapters else states.trained_weight_bytes // numel]
    parts.append(states.gradient_bytes // numel)
    parts += [4] if states.master_bytes else []
    most = max((len(tensor.state_bytes) for tensor in states.trained), default=0)
    sizes = [
        sum(tensor.state_bytes[index] * tensor.count for tensor in states.trained if index < len(tensor.state_bytes))
        for index in range(most)
    ]
    shown = [f"{part}" for part in parts] + [f"{size / numel:.3g}" for size in sizes]
    total = sum(parts) + sum(sizes) / numel
    ways = recipe.expert_parallel_size * recipe.tensor_parallel_size * recipe.pipeline_parallel_size
    where = " on this GPU" if ways > 1 else ""
    return f"{' + '.join(shown)} = {total:.4g} bytes a parameter x {states.trained_numel:,} trained{where}"
