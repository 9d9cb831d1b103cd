"""Whether vLLM generates with a model or pools vectors and scores.

Source: vLLM 0.6.4 to 0.10.1 `config.py` _get_preferred_task, 0.10.2 to 0.19.1 `config/model.py`
_get_default_runner_type and `_SUFFIX_TO_DEFAULTS` (the class's name), sentence-transformers' modules.json before both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.model.model import Model

if TYPE_CHECKING:
    from planner.engines.vllm.deployment import Deployment


def pools(model: Model, deployment: Deployment) -> bool:
    """It gives vectors or scores: no head over the vocabulary, and nothing is sampled."""
    if deployment.pools:
        return True
    asked = deployment.runner in ("generate", "draft") or deployment.task not in ("auto", "")
    return model.spec.decoder and not asked and model.task != "generate"


def task_note(model: Model, deployment: Deployment) -> str | None:
    """What is said where the model, not the command, chooses to pool."""
    if deployment.pools or not pools(model, deployment):
        return None
    what = {"embed": "vectors", "reward": "rewards"}.get(model.task, "scores")
    return f"{model.spec.architecture} gives {what}: vLLM pools (--runner generate would keep its head and sampler)"
