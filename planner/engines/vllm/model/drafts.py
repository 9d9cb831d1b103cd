"""The separate draft of --speculative-config: loaded after the target on the last pipeline stage.

Its weights are printed with the target's, and its layers have a cache in the same pool. It runs in the target's type; a
head takes the target's embedding where there is one stage, and keeps a hidden state for every token of a batch.

Source: vLLM 0.9.0 to 0.19.1 `config/speculative.py`, `v1/spec_decode/eagle.py` (load_model, hidden_states).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.contract.component import Component, exact
from planner.engines.vllm.json_inputs import draft_ways_of, separate_draft_of
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import plain_scheme, scheme_from_config
from planner.memory.weights import stage_weights
from planner.model.drafts import HEADS, Draft, read_draft
from planner.model.model import Model

if TYPE_CHECKING:
    from planner.engines.vllm.deployment import Deployment
    from planner.engines.vllm.resolve import Resolved

_STATES_READ: Final = 3


def draft_of(model: Model, deployment: Deployment) -> Draft | None:
    """The separate draft that --speculative-config names; None where there is none."""
    stated = separate_draft_of(deployment.speculative_config, own_drafts=bool(model.spec.draft_layers))
    if stated is None:
        return None
    alone = deployment.pipeline_parallel_size == 1
    key = ("draft", *stated, alone)
    found = model.memo.get(key)
    if not isinstance(found, Draft):
        found = model.memo[key] = read_draft(model, *stated, shares_embedding=alone)
    return found


def draft_weights(draft: Draft, resolved: Resolved, parallelism: Parallelism) -> tuple[int, int, int]:
    """Bytes on one GPU: low, best, high."""
    if draft.model is None:
        return 0, 0, 0
    ways = draft_ways_of(resolved.asked.speculative_config) or parallelism.tensor_parallel_size
    own = replace(parallelism, tensor_parallel_size=ways, pipeline_parallel_size=1)
    low, best, high = (_weight_bytes(one, resolved, own) for one in draft.sizes)
    return low, best, high


def draft_states(model: Model, resolved: Resolved) -> tuple[list[Component], list[Component]]:
    """What an EAGLE head holds besides: (inside the fraction, outside it).

    One hidden state for every token of a batch, made before the weights are loaded, so in no term until "consumed"
    accounting; EAGLE-3 also keeps the states of three of the target's layers while the profile's batch runs.
    """
    draft = draft_of(model, resolved.asked)
    if draft is None or draft.method not in HEADS:
        return [], []
    tokens, hidden, element = resolved.max_num_batched_tokens, model.spec.hidden_size, resolved.element_bytes
    each, shown = tokens * hidden * element, f"{tokens:,} x {hidden:,} x {element}"
    kept = exact("draft_buffer", each, shown, "vLLM 0.19.1 v1/spec_decode/eagle.py hidden_states")
    inside = []
    if draft.method == "eagle3":
        size = _STATES_READ * each
        source = "vLLM 0.19.1 models/llama.py aux_hidden_states"
        inside.append(exact("draft_states", size, f"{_STATES_READ} x {shown}", source))
    if resolved.profile.accounting == "consumed":
        return [*inside, kept], []
    return inside, [kept]


def _weight_bytes(model: Model, resolved: Resolved, parallelism: Parallelism) -> int:
    spec = model.spec
    plain = spec.quantization_config is None
    scheme = plain_scheme(resolved.dtype) if plain else scheme_from_config(spec, dtype=resolved.dtype)
    return stage_weights(spec, scheme, parallelism, rope_element_bytes=resolved.element_bytes).total_bytes
