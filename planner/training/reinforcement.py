"""Inputs of preference, reinforcement and distillation set-ups, under the trainers' own names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.training.choices import RL

_MOST: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforcement:
    """The models beside the trained one, the lengths of a rollout, and what runs in which phase.

    Args:
        num_generations: completions of a prompt; the sequences of a step are a multiple of it.
        steps_per_generation: micro-batches that one rollout makes (None: of one optimizer step).
        beta: weight of the divergence from the reference; 0 needs no reference (GRPO).
        ref_model, reward_model, critic_model, teacher_model: models beside the policy, by name or path (None: of the
            policy's own size where the objective has one).
        log_prob_micro_batch_size: sequences of a pass without gradients (None: of the training's).
        offload_frozen_models: reference and reward model lie in host memory, a layer at a time on the card.
        offload_policy: the policy's weights and states go to host memory while the engine generates.
    """

    num_generations: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Completions of a prompt.", "--num-generations", "--n-samples-per-prompt", panel=RL),
    ] = None
    steps_per_generation: Annotated[int | None, Ge(1), Le(_MOST), option("Micro-batches of one rollout.", panel=RL)] = (
        None
    )
    max_prompt_length: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option(
            "Prompt tokens; with the completion's they make the sequence.",
            "--max-prompt-length",
            "--prompt-max-len",
            panel=RL,
            unit="tokens",
        ),
    ] = None
    beta: Annotated[
        float | None,
        Ge(0),
        option("Weight of the divergence from the reference; 0: no reference.", "--beta", "--init-kl-coef", panel=RL),
    ] = None
    ref_model: Annotated[
        str | None, option("The reference model.", "--ref-model", "--ref-model-name-or-path", panel=RL, ours=True)
    ] = None
    reward_model: Annotated[
        str | None,
        option("The reward model.", "--reward-model", "--reward-model-path", "--reward-pretrain", panel=RL, ours=True),
    ] = None
    critic_model: Annotated[
        str | None,
        option("The value model.", "--critic-model", "--value-model", "--critic-pretrain", panel=RL, ours=True),
    ] = None
    teacher_model: Annotated[
        str | None,
        option("The model that is distilled.", "--teacher-model", "--teacher-model-name-or-path", panel=RL, ours=True),
    ] = None
    log_prob_micro_batch_size: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option(
            "Sequences of a log-probability pass without gradients.",
            "--log-prob-micro-batch-size",
            "--log-prob-micro-batch-size-per-gpu",
            "--micro-rollout-batch-size",
            panel=RL,
            ours=True,
        ),
    ] = None
    precompute_ref_log_probs: Annotated[
        bool, option("The reference runs before training and is gone (DPO, KTO).", panel=RL)
    ] = False
    offload_frozen_models: Annotated[
        bool | None,
        option(
            "Reference and reward model in host memory.",
            "--offload-frozen-models",
            "--ref-offload",
            panel=RL,
            ours=True,
        ),
    ] = None
    offload_policy: Annotated[
        bool, option("The policy in host memory while the engine generates.", "--offload-policy", panel=RL, ours=True)
    ] = False
