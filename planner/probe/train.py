"""Real training steps in transformers.

The loop is the plain one: forward with labels, backward, optimizer step, for as many micro-batches as the recipe
accumulates. States are counted tensor by tensor, activations by what is live at the end of the layers' forward, and
peaks phase by phase in the last step, when optimizer states exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final

from planner.model.model import Model
from planner.probe.adapters import prepare_model
from planner.probe.backends.base import Meter
from planner.probe.build import packed_tensors, storage_bytes, tensors_in
from planner.probe.extras import library
from planner.probe.optimizers import make_optimizer
from planner.training.recipe import Recipe
from planner.training.step.segments import final_norm
from planner.training.step.step import gradients_wait

JUDGED: Final = ("weights", "gradients", "optimizer", "saved_activations", "peak_allocated")
STEPS: Final = 3


class TrainRun:
    """A few steps of a recipe; `measured` fills as it goes, `phase` says where it is."""

    def __init__(self, meter: Meter, values: Mapping[str, object], recipe: Recipe, planned: Model) -> None:
        self.meter, self.values, self.recipe, self.planned = meter, values, recipe, planned
        self.measured: dict[str, int] = {}
        self.phase = "loading"
        self._before_forward = self._after_layers = 0

    def run(self) -> None:
        """Build, train a few steps, read.

        Raises:
            PlannerError: the model or the optimizer cannot be made.
            RuntimeError: what the device says, out of memory among it.
        """
        recipe = self.recipe
        model = prepare_model(self.values, recipe, device=self.meter.torch_device)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.measured["weights"] = storage_bytes(packed_tensors(model.parameters()))
        optimizer = make_optimizer(recipe.optim or "adamw_torch", trained)
        hook = self._watch_layers(model)
        try:
            for step in range(STEPS):
                peaks = self._step(model, optimizer, last=step == STEPS - 1)
        finally:
            hook.remove()
        self.measured["gradients"] = storage_bytes(parameter.grad for parameter in trained)
        self.measured["optimizer"] = storage_bytes(
            tensor for tensor in tensors_in(dict(optimizer.state)) if tensor.numel() > 1
        )
        stream = recipe.tokens * self.planned.spec.hidden_size * _stream_width(model)
        self.measured["saved_activations"] = self._after_layers - self._before_forward - stream
        self.measured |= peaks
        self.measured["peak_allocated"] = max(peaks.values())

    def _watch_layers(self, model: Any) -> Any:
        """Read what is live when the layers are done: before the final norm, or after the last layer."""
        wanted = final_norm(self.planned.spec)
        modules = dict(model.named_modules())
        name = wanted.name if wanted else ""
        found = [module for path, module in modules.items() if name and (path == name or path.endswith(f".{name}"))]

        def note(*_: object) -> None:
            self._after_layers = self.meter.live_bytes()

        if found:
            return found[0].register_forward_pre_hook(note)
        stacks = [module for module in modules.values() if type(module).__name__ == "ModuleList"]
        layers = next(stack for stack in stacks if len(stack) == len(self.planned.spec.layers))
        return layers[-1].register_forward_hook(note)

    def _step(self, model: Any, optimizer: Any, *, last: bool) -> dict[str, int]:
        torch, meter, recipe = library("torch"), self.meter, self.recipe
        peaks: dict[str, int] = {}
        kept: Any = None
        for _ in range(recipe.gradient_accumulation_steps):
            self._before_forward = meter.live_bytes()
            batch = self._batch(model)
            self.phase = "forward"
            meter.restart_peak()
            with _autocast(torch, recipe, meter.torch_device):
                kept = model(**batch, use_cache=bool(recipe.use_cache) and not recipe.gradient_checkpointing)
            peaks["forward_peak"] = meter.peak_bytes()
            self.phase = "backward"
            meter.restart_peak()
            if recipe.keep_outputs:
                kept.loss.backward()
            else:
                loss, kept = kept.loss, None
                loss.backward()
                del loss
            peaks["backward_peak"] = meter.peak_bytes()
            del batch
            kept = None
        self.phase = "optimizer step"
        meter.restart_peak()
        optimizer.step()
        peaks["step_peak"] = meter.peak_bytes()
        if not last:
            optimizer.zero_grad(set_to_none=not gradients_wait(recipe))
        return peaks

    def _batch(self, model: Any) -> dict[str, Any]:
        torch, recipe = library("torch"), self.recipe
        size = model.get_input_embeddings().weight.shape[0]
        shape = (recipe.per_device_train_batch_size, recipe.max_seq_length)
        tokens = torch.randint(0, size, shape, device=self.meter.torch_device)
        batch = {"input_ids": tokens, "labels": tokens.clone()}
        if recipe.padding:
            mask = torch.ones_like(tokens)
            mask[0, -1] = 0  # one padded sequence is enough for a mask over all
            batch["attention_mask"] = mask
        return batch


def _stream_width(model: Any) -> int:
    return int(model.get_input_embeddings().weight.element_size())


def _autocast(torch: Any, recipe: Recipe, device: str) -> Any:
    if recipe.autocast in (None, "none"):
        return nullcontext()
    dtype = torch.bfloat16 if recipe.autocast == "bf16" else torch.float16
    return torch.autocast(device.split(":")[0], dtype=dtype)
