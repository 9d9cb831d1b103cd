"""Preference, reinforcement and distillation: the models beside the trained one, their passes, and the engine.

dpo, kto       a reference model (none with adapters: they are switched off), its logits without a graph
reward         no output matrix; one score a sequence
ppo            reference, reward and value model (the last trained like the policy)
grpo           a reference model where beta is above 0; rewards are functions unless a reward model is named
distillation   a teacher, its logits beside the student's

Sources: trl 1.10 trainer/dpo_trainer.py, kto_trainer.py, grpo_trainer.py, experimental/ppo, experimental/gkd; verl 0.8
workers/fsdp_workers.py; NeMo-RL models/policy; the measured bytes a token and vocabulary entry of `logprobs.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import UsageError
from planner.memory.cache.formats import cache_format
from planner.memory.cache.kv_cache import layer_caches
from planner.model.load import load_model
from planner.model.model import Model
from planner.training.objectives.logprobs import log_probs
from planner.training.recipe import DTYPES, Recipe

_WHOLE_LAYERS = ("zero3", "fsdp", "fsdp2", "hsdp")
_SCORE_WIDTH = 4  # generate() hands scores out in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """What an objective adds, in bytes on one GPU.

    Args:
        resident_bytes: models that stay. other_models: what they are.
        critic: a value model is trained like the policy: its weights, gradients and states count once more.
        no_grad_bytes: logits of a pass without a graph (log-probabilities, reference), before the policy's forward.
        no_grad_rows: sequences of that pass. no_grad_name: the phase's name ("" where there is none).
        rollout_bytes: cache and scores where the trainer's own model generates; rollouts: completions are generated.
        gathers_rollout: generation needs the whole weights of a sharded model.
        outside_bytes: the generation engine's share, outside torch's allocator; asleep: not while the policy learns.
        host_bytes: models that lie in host memory.
    """

    resident_bytes: int = 0
    other_models: str = ""
    critic: bool = False
    no_grad_bytes: int = 0
    no_grad_rows: int = 0
    no_grad_name: str = ""
    rollouts: bool = False
    rollout_bytes: int = 0
    gathers_rollout: bool = False
    outside_bytes: int = 0
    host_bytes: int = 0
    asleep: bool = False
    outside_formula: str = ""
    notes: tuple[str, ...] = ()

    def activation_bytes(self, recipe: Recipe) -> int:
        """What is alive in a phase besides the policy's own tensors: log-probabilities only, a value a token."""
        return recipe.tokens * 4 * 4 if self.resident_bytes or recipe.objective not in ("sft", "mlm") else 0


class _Found:
    """The models beside the policy as they are added up."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe
        self.ranks = recipe.num_gpus // (recipe.tensor_parallel_size * recipe.pipeline_parallel_size)
        self.resident = self.host = 0
        self.names: list[str] = []
        self.notes: list[str] = []

    def bytes_of(self, name: str | None) -> int:
        """Weights of a frozen model on one rank: as stored, sharded where the policy's layers are."""
        model = self.model if name is None else load_model(name)
        whole = -(-model.parameters * DTYPES[self.recipe.dtype or "bfloat16"] // self.recipe.tensor_parallel_size)
        return -(-whole // self.ranks) if self.recipe.sharding in _WHOLE_LAYERS else whole

    def add(self, kind: str, name: str | None) -> None:
        """A frozen model, on the card or in host memory."""
        away = self.recipe.offload_frozen_models
        if away is None:  # verl 0.8 workers/fsdp_workers.py: CPUOffload for every role but the actor
            away = self.recipe.framework == "verl"
        what = f"a {kind} model" + (f" ({name})" if name else "")
        if not away:
            self.resident += self.bytes_of(name)
            self.names.append(kind)
            self.notes.append(f"{what} is kept beside the trained one")
            return
        model = self.model if name is None else load_model(name)
        width = DTYPES["float32"] if self.recipe.framework == "verl" else DTYPES[self.recipe.dtype or "bfloat16"]
        self.host += -(-model.parameters * width // self.ranks)
        self.notes.append(f"{what} lies in host memory, and a layer at a time comes to the card")


def extra_models(model: Model, recipe: Recipe, card_bytes: int) -> Extra:
    """What the recipe's objective adds for this model.

    Raises:
        UsageError: a model that the objective needs and that is not named.
    """
    found = _Found(model, recipe)
    reference = _has_reference(recipe)
    if reference and recipe.adapters and recipe.ref_model is None:
        found.notes.append("the reference is the base with the adapters switched off: no second model")
    elif reference and not recipe.precompute_ref_log_probs:
        found.add("reference", recipe.ref_model)
    if recipe.objective == "distillation":
        if recipe.teacher_model is None:
            raise UsageError("--objective distillation needs --teacher-model, a name or a path", field="teacher_model")
        found.add("teacher", recipe.teacher_model)
    if recipe.objective == "ppo" or (recipe.objective == "grpo" and recipe.reward_model):
        found.add("reward", recipe.reward_model)
    critic = recipe.objective == "ppo" and not recipe.adapters and recipe.critic_model is None
    if recipe.objective == "ppo" and not critic:
        _add_critic(found)
    if critic:
        found.notes.append("a value model of the policy's size is trained beside it")
    share = _engine_share(recipe, found.notes)
    outside = int(card_bytes * share)
    rows, name, logits = _no_grad_pass(model, recipe, reference)
    itself = recipe.rolls_out and recipe.vllm_mode == "none"
    return Extra(
        resident_bytes=found.resident,
        other_models=", ".join(found.names),
        host_bytes=found.host,
        asleep=bool(recipe.vllm_enable_sleep_mode),
        critic=critic,
        no_grad_bytes=logits,
        no_grad_rows=rows,
        no_grad_name=name,
        rollouts=recipe.rolls_out,
        rollout_bytes=_own_rollout(model, recipe) if itself else 0,
        gathers_rollout=itself and recipe.sharding in _WHOLE_LAYERS,
        outside_bytes=outside,
        outside_formula=f"{card_bytes:,} x {share} for the engine that generates",
        notes=tuple(found.notes),
    )


def _has_reference(recipe: Recipe) -> bool:
    if recipe.objective == "grpo":
        return bool(recipe.beta) or recipe.ref_model is not None
    return recipe.objective in ("dpo", "kto", "ppo")


def _add_critic(found: _Found) -> None:
    """A value model of another size, or of frozen weights with adapters; trained in full it has gradients and states.

    Its states are those of a 16-bit model with fp32 AdamW, 2 + 2 + 12 bytes a parameter over the ranks that share them.
    """
    recipe = found.recipe
    if recipe.adapters:
        found.resident += found.bytes_of(recipe.critic_model)
    else:
        parameters = load_model(recipe.critic_model or "").parameters
        shared = found.ranks if recipe.sharding not in (None, "none", "ddp") else 1
        found.resident += found.bytes_of(recipe.critic_model) + -(-parameters * 14 // shared)
    found.names.append("value")
    found.notes.append(f"a value model ({recipe.critic_model or 'of the policy'}) is kept beside the trained one")


def _engine_share(recipe: Recipe, notes: list[str]) -> float:
    if not recipe.rolls_out or recipe.vllm_mode in ("none", "server"):
        return 0.0
    if recipe.generation_share is None:
        notes.append("the generation engine takes 0.3 of the card (TRL's default); set it with --generation-share")
        return 0.3
    return recipe.generation_share


def _no_grad_pass(model: Model, recipe: Recipe, reference: bool) -> tuple[int, str, int]:
    """Sequences, phase and bytes of logits of the pass without a graph that comes before the policy's forward."""
    if recipe.rolls_out:
        rows = recipe.log_prob_micro_batch_size or recipe.per_device_train_batch_size
        tokens = rows * (recipe.logits_to_keep or recipe.max_seq_length)
        return rows, "log-probabilities", log_probs(recipe).bytes("no_grad", tokens, model.spec.vocab_size)
    if recipe.objective == "distillation":
        logits = recipe.tokens * model.spec.vocab_size * DTYPES[recipe.dtype or "bfloat16"]
        return recipe.sequences, "teacher forward", logits
    if not reference or recipe.precompute_ref_log_probs:
        return 0, "", 0
    rows = recipe.log_prob_micro_batch_size or recipe.sequences
    each = recipe.max_seq_length * model.spec.vocab_size * (DTYPES[recipe.dtype or "bfloat16"] + 4)
    return rows, "reference forward", rows * each


def check_generations(recipe: Recipe) -> None:
    """TRL asks that a rollout's sequences are whole groups (grpo_config.py __post_init__)."""
    number = recipe.num_generations
    if number is None:
        return
    if recipe.objective != "grpo":
        raise UsageError(f"--num-generations is for --objective grpo, not {recipe.objective}", field="num_generations")
    steps = recipe.steps_per_generation or recipe.gradient_accumulation_steps
    sequences = recipe.per_device_train_batch_size * recipe.num_gpus * steps
    if recipe.framework in ("trl", "transformers") and sequences % number:
        raise UsageError(
            f"--num-generations {number} does not divide the {sequences} sequences of a rollout (batch x GPUs x steps)",
            field="num_generations",
        )


def _own_rollout(model: Model, recipe: Recipe) -> int:
    """The cache of every sequence that the trainer's own model generates at once; PPO keeps each step's scores too.

    Source: trl 1.10 grpo_trainer.py _generate_single_turn (the local generation batch), experimental/ppo/ppo_trainer.py
    batch_generation (scores of the rollout in a list, then padded into one tensor).
    """
    steps = recipe.steps_per_generation or recipe.gradient_accumulation_steps
    rows = recipe.per_device_train_batch_size * steps
    width = "float32" if recipe.dtype == "float32" and recipe.autocast == "none" else "bfloat16"
    caches = layer_caches(model.spec.layers, cache_format("auto", width), state_dtype=width)
    size = rows * sum(entry.sequence_bytes(recipe.max_seq_length) for entry in caches)
    if recipe.objective == "ppo" and recipe.max_completion_length:
        size += 2 * rows * recipe.max_completion_length * model.spec.vocab_size * _SCORE_WIDTH
    return size
