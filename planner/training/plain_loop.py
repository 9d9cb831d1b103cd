"""A plain training loop on one device: which recipes it runs, and what it holds, states apart and peaks by phase.

The same terms as `planner.training.plan`, set against what can be read one by one while a loop runs.
"""

from __future__ import annotations

from typing import Final

from planner.errors import UsageError
from planner.model.model import Model
from planner.training.recipe import Recipe, resolve
from planner.training.states.states import states
from planner.training.states.trainable import inventory
from planner.training.step.step import gradients_wait, step_memory

# What a plain loop does not do; anything else in these fields is refused.
_ONLY: Final[dict[str, tuple[object, ...]]] = {
    "framework": ("transformers",),
    "objective": ("sft",),
    "method": ("full", "lora", "qlora", "dora", "qdora", "rslora"),
    "loss": ("hf",),
    "num_gpus": (1,),
    "master_weights": ("none",),
    "grad_dtype": (None,),
    "activation_offload": (False,),
    "offload_optimizer": (False,),
    "offload_parameters": (False,),
    "optimizer_in_backward": (False,),
    "torch_compile": (False,),
    "checkpoint_every": (1,),
    "ema": (False,),
    "logits_to_keep": (None,),
    "base_quantization": ("none", "nf4", "fp4"),
    "modules_to_save": ((),),
}


def plain_loop_recipe(recipe: Recipe) -> Recipe:
    """The recipe with its defaults filled in.

    Raises:
        UsageError: the recipe asks for something that a plain loop does not do; names the option.
    """
    resolved = resolve(recipe)
    for name, allowed in _ONLY.items():
        value = getattr(resolved, name)
        if value not in allowed:
            works = ", ".join(str(item) for item in allowed)
            raise UsageError(
                f"--{name.replace('_', '-')} {value}: a plain loop on one device does {works} only", field=name
            )
    return resolved


def plain_loop_bytes(
    model: Model, recipe: Recipe, *, exact_sizes: bool, workspace_bytes: int = 0
) -> dict[str, int | None]:
    """Bytes planned for a recipe of `plain_loop_recipe`, states apart and peaks by phase.

    Args:
        exact_sizes: as the CPU counts them; otherwise as CUDA's allocator rounds them.
    """
    found = inventory(model, recipe)
    held = states(found, recipe)
    step = step_memory(model, found, recipe, exact_sizes=exact_sizes)
    waiting = held.gradient_bytes if gradients_wait(recipe) else 0
    weights = held.frozen_bytes + held.trained_weight_bytes
    rounding = 0 if exact_sizes else held.weight_rounding_bytes + held.optimizer_rounding_bytes
    during = weights + held.optimizer_bytes + rounding + waiting + workspace_bytes
    by_name = {phase.name: during + phase.activation_bytes for phase in step.phases}
    after = weights + held.optimizer_bytes + rounding + held.gradient_bytes + workspace_bytes
    peaks = {
        "forward_peak": max(by_name["forward"], by_name["loss forward"]),
        "backward_peak": max(by_name["loss backward"], by_name["backward of the layers"]),
        "step_peak": after + held.step_temporary_bytes(),
    }
    return {
        "weights": weights,
        "gradients": held.gradient_bytes,
        "optimizer": held.optimizer_bytes,
        "saved_activations": step.saved_bytes,
        **peaks,
        "peak_allocated": max(peaks.values()),
    }
