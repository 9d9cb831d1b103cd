"""The training plan: states, activations by phase, what the allocator and the driver add, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from planner.contract.component import Component, exact
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, unnamed_gpu
from planner.model.model import Model
from planner.model.tensor import Role
from planner.training.allocator.allocator import Ratio, reserved_ratio
from planner.training.allocator.memory import Band, CardMemory, card_memory
from planner.training.allocator.script import script_of
from planner.training.components import components, fragmentation
from planner.training.objectives.beside import kept_logits_bytes
from planner.training.objectives.objectives import Extra, check_generations, extra_models
from planner.training.outside import outside_parts, workspace_bytes
from planner.training.recipe import DEEPSPEED, Recipe, kernels, resolve
from planner.training.recipe_checks import check_model
from planner.training.sharding.sharding import Sharded, shard
from planner.training.states.inventory import Inventory
from planner.training.states.states import States, states
from planner.training.states.trainable import distinct_stages, inventory
from planner.training.step.segments import gradients_wait
from planner.training.step.step import StepMemory, step_memory

Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """What `max_memory_allocated` would say for one phase of the step, and what a generation engine holds meanwhile."""

    name: str
    allocated_bytes: int
    engine_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The answer to "does the fine-tune fit".

    Everything is per GPU of the fullest rank; sizes in bytes.

    Args:
        recipe: with every default filled in.
        phases: peaks of allocated memory by phase, in order.
        memory: what `max_memory_reserved` and nvidia-smi would say, with bands (None where only the verdict was asked
            for).
        needed_low, needed_best, needed_high: what a card must have: without fragmentation, with the least and with the
            usual share of reserved over allocated (free blocks are given back before an allocation fails).
        host_bytes: host memory of one rank.
    """

    model: Model
    recipe: Recipe
    gpu: Gpu
    gpu_memory_bytes: int
    states: States
    step: StepMemory
    sharded: Sharded
    components: tuple[Component, ...]
    phases: tuple[PhasePeak, ...]
    allocated_bytes: int
    memory: CardMemory | None
    needed_low: int
    needed_best: int
    needed_high: int
    host_bytes: int
    verdict: Verdict
    shortfall_bytes: int
    notes: tuple[str, ...]

    @property
    def peak_phase(self) -> str:
        """The phase with the most memory, of torch and of a generation engine."""
        return max(self.phases, key=lambda phase: phase.allocated_bytes + phase.engine_bytes).name


def plan_training(
    model: Model,
    recipe: Recipe,
    gpu: Gpu | None = None,
    *,
    gpu_memory_bytes: int | None = None,
    notes: tuple[str, ...] = (),
    replays: bool = True,
) -> TrainingPlan:
    """Plan one fine-tune.

    Args:
        replays: the step is replayed through the allocator, for `memory`; searches leave it out.
        gpu: the card (None: one of which only the memory is known).
        gpu_memory_bytes: what the driver reports, where it is known better than the table has it.

    Raises:
        UsageError: options out of range, contradictory, or impossible for this model; names the option.
        UnsupportedArchitecture: a kind of block whose training is not modelled.
    """
    recipe, own = _on_quantised(model, recipe)
    resolved = resolve(recipe)
    if gpu is None:
        if gpu_memory_bytes is None:
            raise UsageError("no card: pass a GPU or the memory its driver reports", field="gpu")
        gpu = unnamed_gpu(gpu_memory_bytes)
    card = gpu_memory_bytes or gpu.total_memory_bytes
    resolved, cut = _within_positions(model, resolved)
    own += cut
    check_model(model, resolved)
    if replays:  # searches try batches that are no whole groups
        check_generations(resolved)
    extra = extra_models(model, resolved, card)
    stages = distinct_stages(model.spec, resolved)
    rank = max(
        (_rank(model, resolved, extra, gpu, stage) for stage in stages), key=lambda one: one.peak.allocated_bytes
    )
    found, all_states, step, held, phases, peak = rank.found, rank.states, rank.step, rank.held, rank.phases, rank.peak
    allocated = peak.allocated_bytes
    workspace = workspace_bytes(gpu, trains=resolved.method != "inference")
    ratio = max(
        (_ratio(resolved, phase.name) for phase in phases if phase.allocated_bytes == allocated), key=lambda r: r.best
    )
    outside = outside_parts(gpu, resolved, extra)
    if extra.asleep and extra.outside_bytes:
        outside += (_sleeping_engine(extra, phases, allocated),)
    low, best, high = (sum(part.at(side) for part in outside) for side in ("low", "best", "high"))
    reserved = max(_times(phase.allocated_bytes, _ratio(resolved, phase.name), "best") for phase in phases)
    least = max(_times(phase.allocated_bytes, _ratio(resolved, phase.name), "low") for phase in phases)
    needed_best = least + best
    needed_high = reserved + high
    verdict: Verdict = "fits" if needed_high <= card else "tight" if needed_best <= card else "does_not_fit"
    said = [*notes, *own, *model.spec.notes, *model.notes, *found.notes, *held.notes, *extra.notes]
    said += _recipe_notes(model, resolved, all_states)
    return TrainingPlan(
        model=model,
        recipe=resolved,
        gpu=gpu,
        gpu_memory_bytes=card,
        states=all_states,
        step=step,
        sharded=held,
        components=(
            *components(model, resolved, all_states, step, held, peak.name, allocated, workspace, extra),
            fragmentation(allocated, least, reserved, ratio),
            *outside,
        ),
        phases=phases,
        allocated_bytes=allocated,
        memory=_memory(rank, resolved, outside, card, workspace, Band(least, reserved, reserved), extra)
        if replays
        else None,
        needed_low=allocated + low,
        needed_best=needed_best,
        needed_high=needed_high,
        host_bytes=held.host + step.host_bytes + extra.host_bytes,
        verdict=verdict,
        shortfall_bytes=max(0, needed_best - card),
        notes=tuple(dict.fromkeys(said)),
    )


def _sleeping_engine(extra: Extra, phases: tuple[PhasePeak, ...], allocated_bytes: int) -> Component:
    """A generation engine that is awake beside the states and asleep beside the update's peak."""
    beside = max(phase.allocated_bytes for phase in phases if phase.engine_bytes)
    woken = max(0, extra.outside_bytes + beside - allocated_bytes)
    asleep = f"{extra.outside_formula}, asleep while the policy learns: what rollout has beyond the update's peak"
    return exact("generation_engine", woken, asleep, "trl 1.10 grpo_trainer.py vllm_enable_sleep_mode")


def _memory(
    rank: _Rank,
    recipe: Recipe,
    outside: tuple[Component, ...],
    card: int,
    workspace: int,
    usual: Band,
    extra: Extra,
) -> CardMemory:
    held = rank.held
    script = script_of(rank.found, rank.states, rank.step, recipe, workspace, held.weights, held.optimizer)
    output = rank.found.output
    in_place = recipe.tokens * output.shape[0] * 4 if recipe.loss == "in-place" and output is not None else 0
    beside = extra.resident_bytes + (held.weights + held.optimizer + held.gradients if extra.critic else 0)
    allocated = rank.peak.allocated_bytes
    return card_memory(script, usual, outside, card, in_place, beside, allocated, expandable=recipe.expandable_segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What one pipeline stage's GPU holds."""

    found: Inventory
    states: States
    step: StepMemory
    held: Sharded
    phases: tuple[PhasePeak, ...]
    peak: PhasePeak


def _rank(model: Model, recipe: Recipe, extra: Extra, gpu: Gpu, stage: int) -> _Rank:
    found = inventory(model, recipe, stage=stage)
    all_states = states(found, recipe)
    step = step_memory(model, found, recipe)
    whole = None
    if recipe.expert_parallel_size > 1:
        whole = states(inventory(model, replace(recipe, expert_parallel_size=1), stage=stage), recipe)
    held = shard(all_states, found, recipe, hidden_size=model.spec.hidden_size, whole=whole)
    phases = _phases(recipe, all_states, step, held, extra, gpu)
    peak = max(phases, key=lambda phase: phase.allocated_bytes)
    return _Rank(found=found, states=all_states, step=step, held=held, phases=phases, peak=peak)


def _ratio(recipe: Recipe, phase: str) -> Ratio:
    """Reserved over allocated at the peak of a phase."""
    return reserved_ratio(
        trains_all=recipe.method == "inference" or phase in ("optimizer step", "loading"),
        eager=recipe.attn_implementation == "eager",
        quantised=recipe.base_quantization != "none",
    )


def _on_quantised(model: Model, recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """QLoRA on a checkpoint that is quantised already is LoRA on it as it is; with the note that says so."""
    plain = {"qlora": "lora", "qdora": "dora"}.get(recipe.method)
    quantised = model.spec.quantization_config is not None and not recipe.dequantize
    if quantised and recipe.base_quantization == "none" and recipe.method != "inference":
        raise UsageError(
            "--base-quantization none: this checkpoint is quantised; --dequantize makes its weights 16 bit",
            field="base_quantization",
        )
    if not quantised or plain is None or recipe.base_quantization is not None:
        return recipe, ()
    note = f"this checkpoint is quantised: --method {recipe.method} is {plain} on it as it is"
    return replace(recipe, method=plain), (note,)


def _within_positions(model: Model, recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """A length that was not asked for is no longer than a table of learned positions; with the note that says so."""
    longest = model.spec.max_position_embeddings
    learned = any(tensor.role is Role.POSITION for tensor in model.spec.embeddings)
    if (
        not learned
        or not longest
        or recipe.max_seq_length != Recipe().max_seq_length
        or longest >= recipe.max_seq_length
    ):
        return recipe, ()
    note = f"sequences are planned at the model's {longest:,} positions, which are learned (--max-seq-length)"
    return replace(recipe, max_seq_length=longest), (note,)


def _times(size: int, ratio: Ratio, side: Literal["low", "best", "high"]) -> int:
    part = {"low": ratio.low, "best": ratio.best, "high": ratio.high}[side]
    return size * part.numerator // part.denominator


def _phases(
    recipe: Recipe, all_states: States, step: StepMemory, held: Sharded, extra: Extra, gpu: Gpu
) -> tuple[PhasePeak, ...]:
    static = held.weights + held.optimizer + workspace_bytes(gpu, trains=recipe.method != "inference")
    static += extra.resident_bytes
    if extra.critic:
        static += held.weights + held.optimizer + held.gradients
    if recipe.ema:
        static += all_states.trained_numel * 4
    waiting = held.waiting if gradients_wait(recipe) else 0
    if recipe.master_weights == "fp32" and recipe.framework == "megatron":
        waiting = held.gradients  # one contiguous buffer from the start
    during = static + waiting + held.buckets + held.gathered
    in_forward, in_loss, in_backward = held.gathered_layers
    layers = {"loss forward": 0, "loss backward": in_loss, "backward of the layers": in_backward}
    found = [PhasePeak(name="loading", allocated_bytes=held.loading)]
    for phase in step.phases:
        size = during + layers.get(phase.name, in_forward) + phase.activation_bytes + extra.activation_bytes(recipe)
        if phase.name == "backward of the layers":
            size += held.unit_gradients
        found.append(PhasePeak(name=phase.name, allocated_bytes=size))
    if extra.no_grad_name:
        working = (step.phases[0].activation_bytes - step.saved_bytes) * extra.no_grad_rows // recipe.sequences
        before = during + in_forward + extra.no_grad_bytes + working
        found.insert(1, PhasePeak(name=extra.no_grad_name, allocated_bytes=before))
    if extra.rollouts:
        kept = workspace_bytes(gpu, trains=True) if recipe.offload_policy else static
        whole = all_states.frozen_bytes + all_states.trained_weight_bytes - held.weights if extra.gathers_rollout else 0
        found.insert(1, PhasePeak(name="rollout", allocated_bytes=kept + max(0, whole) + extra.rollout_bytes))
    if recipe.eval_samples:
        found.append(PhasePeak(name="evaluation", allocated_bytes=static + held.gathered + _evaluation(recipe, step)))
    if recipe.optimizer_in_backward:
        found.append(PhasePeak(name="optimizer step", allocated_bytes=static + _largest_update(all_states)))
    if recipe.method != "inference" and not recipe.optimizer_in_backward:
        fused = bool(kernels(recipe).get("fused_optimizer")) and recipe.sharding not in DEEPSPEED
        temporary = 0 if fused else held.step_temporary
        size = static + held.gradients + held.step_buckets + temporary
        found.append(PhasePeak(name="optimizer step", allocated_bytes=size))
    return tuple(replace(one, engine_bytes=_engine(extra, one.name)) for one in found)


def _engine(extra: Extra, phase: str) -> int:
    """What a colocated engine holds in a phase: asleep, it is awake while it generates alone."""
    return 0 if phase == "loading" or (extra.asleep and phase != "rollout") else extra.outside_bytes


def _evaluation(recipe: Recipe, step: StepMemory) -> int:
    """One evaluation batch's logits, in the model's type and twice in fp32, and those that the metrics keep."""
    batch = min(recipe.eval_samples, recipe.per_device_eval_batch_size)
    size = batch * recipe.max_seq_length * step.vocabulary
    kept = 0
    if recipe.compute_metrics:
        most = recipe.eval_accumulation_steps
        samples = recipe.eval_samples if most is None else min(recipe.eval_samples, most * batch)
        kept = kept_logits_bytes(samples, recipe.max_seq_length, step.vocabulary)
    return kept + size * (step.stream_width + 4 + 4)


def _largest_update(all_states: States) -> int:
    """What stands beside the states when the largest tensor is updated in backward: its gradient and temporaries.

    That is the embedding, whose gradient is the last to come, when nothing is left of the forward.
    """
    largest = max((t.gradient_bytes for t in all_states.trained), default=0)
    temporary = all_states.step_temporary_bytes() if all_states.optimizer.step.startswith("largest:") else 0
    return largest + temporary


def _recipe_notes(model: Model, recipe: Recipe, all_states: States) -> list[str]:
    notes = []
    longest = model.spec.max_position_embeddings
    if longest and recipe.max_seq_length > longest:
        notes.append(
            f"--max-seq-length {recipe.max_seq_length:,} is longer than the model's {longest:,} positions:"
            " it needs rope scaling, or the loss will not fall"
        )
    effective = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps * recipe.num_gpus
    model_ways = recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.context_parallel_size
    notes.append(f"effective batch: {effective // model_ways} sequences a step")
    if all_states.optimizer.paged:
        notes.append("paged optimizer states are in unified memory: they leave the card when it is full")
    if recipe.framework == "torchtune" and recipe.torch_compile:
        notes.append(
            "blocks and loss are taken to be compiled, as in torchtune's published figures with a chunked loss;"
            " --no-torch-compile plans without"
        )
    if recipe.method in ("qlora", "qdora") and not recipe.prepare_kbit and not recipe.gradient_checkpointing:
        notes.append(
            "nearly every QLoRA recipe calls prepare_model_for_kbit_training, which turns gradient checkpointing on:"
            " --prepare-kbit"
        )
    if gradients_wait(recipe) and recipe.gradient_accumulation_steps == 1:
        notes.append(
            "the gradients of the step before are taken to be alive (a loop that sets them to zero, or only after the"
            " forward); --drop-gradients plans for one that sets them to None"
        )
    return notes
