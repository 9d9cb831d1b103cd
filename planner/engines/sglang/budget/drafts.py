"""Drafts on one card: the model's own draft layers, or the separate model of --speculative-draft-model-path.

A separate draft is a model of its own to the engine: it is loaded with an embedding and a head, which an EAGLE worker
then exchanges for the target's. STANDALONE keeps both, and a row of its own layers for every token of the pool.

Source: SGLang 0.5.9 `speculative/eagle_worker.py`, `speculative/standalone_worker.py`.
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.engines.sglang.budget.spread import Spread
from planner.engines.sglang.resolve import Resolved
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config
from planner.memory.weights import StageWeights, stage_weights
from planner.model.drafts import Draft, read_draft
from planner.model.model import Model
from planner.model.tensor import Role

_METHODS: Final = {"EAGLE": "eagle", "EAGLE3": "eagle3", "STANDALONE": "draft_model"}
_SOURCE: Final = "SGLang 0.5.9 speculative/eagle_worker.py"


def separate_draft(model: Model, resolved: Resolved) -> Draft | None:
    """The draft of --speculative-draft-model-path; None where the model's own layers, or none, propose."""
    name, drafts = resolved.asked.speculative_draft_model_path, resolved.drafts
    if drafts is None or not name or drafts.algorithm == "NGRAM" or _is_own(model, name):
        return None
    key = ("sglang separate draft", name, drafts.algorithm)
    found = model.memo.get(key)
    if not isinstance(found, Draft):
        method = _METHODS.get(drafts.algorithm, drafts.algorithm.lower())
        found = model.memo[key] = read_draft(model, name, method, shares_embedding=False)
    return found


def _is_own(model: Model, name: str) -> bool:
    """The target's own checkpoint, or its exported draft layers (lmsys/DeepSeek-R1-NextN)."""
    own = name.lower() in (model.id.lower(), model.base.lower()) or name.lower().endswith(("-nextn", "-mtp"))
    return own and bool(model.spec.draft_layers)


def draft_weights(model: Model, resolved: Resolved, scheme: WeightScheme) -> Component | None:
    """Weights of the draft with an embedding and a head of its own; None where nothing is loaded."""
    separate = separate_draft(model, resolved)
    if separate is not None:
        return _of_model(separate, resolved)
    drafts = resolved.drafts
    if drafts is None or drafts.algorithm == "NGRAM":
        return None
    spec = model.spec
    if not spec.draft_layers:
        return None
    stage = _draft_stage(model, resolved.spread, scheme)
    own = sum(size for role, size in stage.by_role if role not in (Role.VISION, Role.AUDIO))
    shared = stage.role_bytes(Role.EMBEDDING, Role.LM_HEAD)
    return Component(
        name="draft_weights",
        low=own - shared,
        best=own,
        high=own,
        evidence="derived",
        formula=f"{len(spec.draft_layers)} draft layers, with an embedding and a head of their own {own:,}",
        source=_SOURCE,
    )


def _of_model(draft: Draft, resolved: Resolved) -> Component | None:
    if draft.model is None:
        return None
    low, best, high = (_held(one, resolved) for one in draft.sizes)
    shared = 0 if draft.method == "draft_model" else low.role_bytes(Role.EMBEDDING)
    return Component(
        name="draft_weights",
        low=low.total_bytes - shared,
        best=best.total_bytes,
        high=high.total_bytes,
        evidence="assumed" if draft.narrow is not None else "derived",
        formula=f"the draft {draft.name[:60]} of {best.numel:,} weights on a card {best.total_bytes:,}",
        source=_SOURCE,
    )


def _held(model: Model, resolved: Resolved) -> StageWeights:
    spec = model.spec
    plain = spec.quantization_config is None
    scheme = plain_scheme(resolved.dtype) if plain else scheme_from_config(spec, dtype=resolved.dtype)
    return stage_weights(spec, scheme, Parallelism(tensor_parallel_size=resolved.spread.attention_parallel_size))


def _draft_stage(model: Model, spread: Spread, scheme: WeightScheme) -> StageWeights:
    """The draft layers on one card, remembered with the model."""
    key = ("sglang drafts", scheme.label, id(scheme), spread)
    found = model.memo.get(key)
    if isinstance(found, StageWeights):
        return found
    spec = model.spec
    parallelism = Parallelism(
        tensor_parallel_size=spread.attention_parallel_size,
        data_parallel_size=spread.attention_ranks,
        enable_expert_parallel=spread.expert_parallel_size > 1,
    )
    run = slice(len(spec.layers), len(spec.layers))
    made = stage_weights(
        spec, scheme, parallelism, layers=run, first=True, last=True, with_drafts=True, with_towers=False
    )
    model.memo[key] = made
    return made
