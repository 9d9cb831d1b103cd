"""Preference and reinforcement set-ups: the models beside the trained one, their logits, and the generation engine.

dpo, kto   a reference model (none with adapters: they are switched off), its logits without a graph
reward     no output matrix; one score a sequence
ppo        reference, reward and value model (the last trained like the policy)
grpo       a reference model; rewards are functions

Sources: trl trainer/dpo_trainer.py, kto_trainer.py, grpo_trainer.py, ppo_trainer.py; the measured 5.5 B a token and
vocabulary entry of a log-probability forward without a graph is logits in 16 bit and one fp32 copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.model import Model
from planner.training.recipe import DTYPES, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """What an objective adds, in bytes on one GPU.

    Args:
        resident_bytes: models that stay.
        critic: a value model is trained like the policy: its weights, gradients and states count once more.
        reference_logits_bytes: alive while the reference runs, before the policy's forward.
        outside_bytes: the generation engine's share, outside torch's allocator; asleep: not while the policy learns.
        host_bytes: models that lie in host memory.
    """

    resident_bytes: int = 0
    critic: bool = False
    reference_logits_bytes: int = 0
    outside_bytes: int = 0
    host_bytes: int = 0
    asleep: bool = False
    outside_formula: str = ""
    notes: tuple[str, ...] = ()

    def activation_bytes(self, recipe: Recipe, phase: str) -> int:
        """What is alive in a phase besides the policy's own tensors: log-probabilities only, a value a token."""
        return recipe.tokens * 4 * 4 if self.resident_bytes or recipe.objective != "sft" else 0


def extra_models(model: Model, recipe: Recipe, card_bytes: int) -> Extra:
    """What the recipe's objective adds for this model."""
    width = DTYPES[recipe.dtype or "bfloat16"]
    whole = -(-model.parameters * width // recipe.tensor_parallel_size)
    ranks = recipe.num_gpus // (recipe.tensor_parallel_size * recipe.pipeline_parallel_size)
    if recipe.sharding in ("zero3", "fsdp", "fsdp2", "hsdp"):
        whole = -(-whole // ranks)
    notes: list[str] = []
    host = 0
    resident = 0
    reference = recipe.objective in ("dpo", "kto", "ppo", "grpo")
    if reference and recipe.adapters:
        notes.append("the reference is the base with the adapters switched off: no second model")
    elif reference and recipe.framework == "verl":
        # verl 0.8 workers/fsdp_workers.py: CPUOffload for every role but the actor
        host = -(-model.parameters * DTYPES["float32"] // ranks)
        notes.append("the reference model lies in host memory, and a layer at a time comes to the card")
    elif reference:
        resident += whole
        notes.append("a reference model is kept beside the trained one")
    if recipe.objective == "ppo":
        resident += whole  # reward model, frozen
        resident += whole if recipe.adapters else 0  # the value model's weights; trained in full, see `critic`
        notes.append("reward and value models of the policy's size are kept on the same card")
    logits = recipe.tokens * model.spec.vocab_size * (width + 4) if reference else 0
    share = 0.0 if recipe.vllm_mode in ("none", "server") else recipe.generation_share
    if share is None and recipe.objective in ("ppo", "grpo"):
        share = 0.3
        notes.append("the generation engine takes 0.3 of the card (TRL's default); set it with --generation-share")
    outside = int(card_bytes * (share or 0))
    return Extra(
        resident_bytes=resident,
        host_bytes=host,
        asleep=recipe.vllm_enable_sleep_mode,
        critic=recipe.objective == "ppo" and not recipe.adapters,
        reference_logits_bytes=logits,
        outside_bytes=outside,
        outside_formula=f"{card_bytes:,} x {share} for the engine that generates",
        notes=tuple(notes),
    )
