"""The budget of one GPU: what vLLM subtracts from total x utilisation before the rest becomes KV cache.

    available_kv = requested - weights - activation_peak - non_torch - (graph estimate from 0.20)

Source: vLLM `v1/worker/gpu_worker.py` determine_available_memory, by version as `EngineProfile.accounting` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from planner.contract.assumed import labelled
from planner.contract.component import Component, Side, exact, total
from planner.engines.vllm.budget.activation import activation_peak, per_layer_width
from planner.engines.vllm.budget.adapters import lora_slots
from planner.engines.vllm.budget.engine_layout import absorbed_bytes, engine_spec
from planner.engines.vllm.budget.graphs import FIRST_GRAPH_PROBE, graph_components
from planner.engines.vllm.budget.kept import kept_buffers
from planner.engines.vllm.budget.outside_torch import (
    PENALTIES_SOURCE,
    communicators,
    consumed_extra,
    driver_context,
    non_torch,
    penalty_buffers,
    post_profile,
)
from planner.engines.vllm.budget.runner import situation_of, uses_v2_runner
from planner.engines.vllm.model.drafts import draft_of, draft_states, draft_weights
from planner.engines.vllm.model.storage import is_plain
from planner.engines.vllm.model.tasks import pools
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.overhead import overhead
from planner.engines.vllm.tables.profile import parse_version
from planner.engines.vllm.tables.version_band import version_band
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import WeightScheme, quantises_inputs
from planner.memory.weights import StageWeights, stage_weights
from planner.model.model import Model
from planner.model.tensor import Role
from planner.units import format_size, gib

_LATENT_BACKEND_WORKSPACE: Final = (0, 10, 0)
# V0 loads the adapters' slots inside the measured window (worker/model_runner.py load_model 0.8.5)
_V0_COUNTS_SLOTS: Final = (0, 8, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBudget:
    """One pipeline stage on its fullest GPU.

    Args:
        stage: index of the stage.
        layers: the stage's layers.
        weights: its weights by role.
        requested_bytes: total x utilisation, rounded as the version rounds.
        inside: what is subtracted from it, in order.
        outside: what must fit in the rest of the card.
    """

    stage: int
    layers: slice
    weights: StageWeights
    requested_bytes: int
    inside: tuple[Component, ...]
    outside: tuple[Component, ...]

    def available(self, side: Side) -> int:
        """Bytes left for KV cache with every component at `side` ("low", "best" or "high")."""
        return self.requested_bytes - total(self.inside, side)

    def component(self, name: str) -> Component | None:
        """The component of this name, inside or outside."""
        for component in self.inside + self.outside:
            if component.name == name:
                return component
        return None


def requested_bytes(total_bytes: int, utilization: float, *, ceil: bool) -> int:
    """total x utilisation, rounded down, or up from 0.14 (vllm/v1/worker/utils.py request_memory)."""
    product = total_bytes * utilization
    return math.ceil(product) if ceil else int(product)


def stage_budget(
    model: Model,
    resolved: Resolved,
    scheme: WeightScheme,
    parallelism: Parallelism,
    *,
    stage: int,
    layers: slice,
    stages: int,
    utilization: float,
) -> StageBudget:
    """What one stage's fullest GPU subtracts, and what it holds outside the fraction.

    Raises:
        UsageError: a tensor that the GPUs cannot share; names it.
    """
    first, last = stage == 0, stage == stages - 1
    weights = weights_of(model, resolved, scheme, parallelism, layers=layers, first=first, last=last)
    inside = [_weight_component(model, resolved, scheme, weights, layers, parallelism)]
    adapters = lora_slots(model, resolved, parallelism, layers=layers, first=first, last=last)
    slots_counted = resolved.profile.runner != "v0" or parse_version(resolved.profile.version) >= _V0_COUNTS_SLOTS
    if adapters is not None and slots_counted:
        inside.append(adapters)
    inside.append(
        activation_peak(
            model, resolved, parallelism, layers=layers, last=last, quantised_inputs=quantises_inputs(scheme)
        )
    )
    inside.append(non_torch(model, resolved))
    graphs = graph_components(model, resolved, layers)
    outside: list[Component] = []
    if resolved.profile.accounting not in ("context", "device_used"):
        # those versions count it inside the fraction
        outside.append(driver_context(resolved))
    if parallelism.tensor_parallel_size * stages > 1 and not resolved.profile.nccl_in_non_torch:
        outside.append(communicators(model, resolved))
    if adapters is not None and not slots_counted:
        # allocated after the weights are measured and before the profile: in no term
        outside.append(adapters)
    if resolved.profile.accounting == "consumed":
        inside.append(consumed_extra(model, resolved, kept_buffers(model, resolved, parallelism, layers)))
    elif uses_v2_runner(model, resolved):
        # made before the weights are loaded: in no term until 0.28
        size, formula = penalty_buffers(model, resolved)
        outside.append(exact("persistent_buffers", size, formula, PENALTIES_SOURCE))
    if last:
        states, buffers = draft_states(model, resolved)
        inside += states
        outside += buffers
    if graphs is not None:
        estimate, actual = graphs
        if _graphs_inside(model, resolved):
            inside.append(estimate)
        else:
            outside.append(actual)
    outside.append(post_profile(model, resolved))
    if resolved.asked.already_used_bytes:
        used = resolved.asked.already_used_bytes
        other = exact("other_processes", used, f"stated: {format_size(used)}", "--already-used")
        (inside if resolved.profile.accounting == "device_used" else outside).append(other)
    if resolved.profile.accounting == "device_used":
        inside.append(driver_context(resolved))
    unproved = version_band(resolved.profile)
    card = resolved.asked.gpu
    if unproved is not None and not (card is not None and card.unified_memory):
        # on unified memory the driver's term has the room for it
        inside.append(unproved)
    return StageBudget(
        stage=stage,
        layers=layers,
        weights=weights,
        requested_bytes=requested_bytes(resolved.gpu_memory_bytes, utilization, ceil=resolved.profile.ceil_requested),
        inside=labelled(inside, model.spec.assumed),
        outside=labelled(outside, model.spec.assumed),
    )


def _graphs_inside(model: Model, resolved: Resolved) -> bool:
    """The profile takes an estimate of the graphs off the fraction."""
    if uses_v2_runner(model, resolved) and not resolved.profile.v2_graph_estimate:
        return False
    asked = resolved.asked.estimate_cudagraphs
    if asked is not None and parse_version(resolved.profile.version) >= FIRST_GRAPH_PROBE:
        return asked
    return resolved.profile.graphs_inside


def weights_of(
    model: Model,
    resolved: Resolved,
    scheme: WeightScheme,
    parallelism: Parallelism,
    *,
    layers: slice,
    first: bool,
    last: bool,
) -> StageWeights:
    """Computed once per model, storage and parallelism; every other input only moves the budget's arithmetic."""
    asked = resolved.asked
    towers = not (asked.language_model_only or asked.limit_images == 0)
    drafts = asked.draft_tokens > 0
    key = (
        "weights",
        scheme,
        parallelism,
        layers.start,
        layers.stop,
        first,
        last,
        towers,
        drafts,
        resolved.element_bytes,
        asked.mm_encoder_tp_mode,
        pools(model, asked),
    )
    found = model.memo.get(key)
    if not isinstance(found, StageWeights):
        found = stage_weights(
            engine_spec(model, exported=asked.quantization is not None, pools=pools(model, asked)),
            scheme,
            parallelism,
            layers=layers,
            first=first,
            last=last,
            with_drafts=drafts,
            with_towers=towers,
            whole_towers=asked.mm_encoder_tp_mode == "data",
            rope_element_bytes=resolved.element_bytes,
        )
        model.memo[key] = found
    return found


def _weight_component(
    model: Model,
    resolved: Resolved,
    scheme: WeightScheme,
    weights: StageWeights,
    layers: slice,
    parallelism: Parallelism,
) -> Component:
    size = weights.total_bytes
    parts = " + ".join(f"{role.value} {gib(size)}" for role, size in weights.by_role)
    formula = f"{weights.numel:,} weights as {scheme.label}: {parts} + rotary tables {gib(weights.rope_bytes)}"
    formula += f" + allocator rounding {gib(weights.rounding_bytes)} GiB"
    version = parse_version(resolved.profile.version)
    if model.has_latent_cache and version >= _LATENT_BACKEND_WORKSPACE:
        workspace = overhead("latent_backend_workspace", situation_of(model, resolved)).best
        size += workspace
        formula += f" + MLA backend workspace {format_size(workspace)}"
    absorbed = absorbed_bytes(
        model,
        version,
        layers=layers,
        ways=resolved.asked.tensor_parallel_size,
        element_bytes=1 if scheme.label.startswith("fp8") else resolved.element_bytes,
    )
    if absorbed and not resolved.asked.cpu_offload_bytes:
        # products of offloaded matrices stay in host memory with them
        size += absorbed
        formula += f" + absorbed MLA products {gib(absorbed)} GiB"
    width = per_layer_width(model)
    if width and model.spec.stacks:
        # models/gemma3n_mm.py and gemma4_mm.py keep the per-layer inputs of a whole batch
        buffer = resolved.max_num_batched_tokens * width * resolved.element_bytes
        size += buffer
        formula += f" + per-layer inputs {resolved.max_num_batched_tokens:,} x {width:,} x {resolved.element_bytes}"
    extra = overhead("load_extra", situation_of(model, resolved))
    if extra.best:
        size += extra.best
        formula += f" + {format_size(extra.best)} that releases from 0.27 on print beyond the tensors"
    below = above = 0
    assumed = False
    draft = draft_of(model, resolved.asked) if layers.stop == len(model.spec.layers) else None
    if draft is not None:
        low, best, high = draft_weights(draft, resolved, parallelism)
        below, above, assumed = best - low, high - best, draft.narrow is not None
        size += best
        formula += f" + the draft {draft.name[:60]} {gib(best)} GiB" if best else ""
    offload = resolved.asked.cpu_offload_bytes
    if offload:
        movable = size - weights.rope_bytes - weights.role_bytes(Role.EMBEDDING, Role.LM_HEAD)
        moved = min(offload, movable)
        size -= moved
        formula += f" - {gib(moved)} GiB offloaded to host memory"
    plain = is_plain(scheme)
    slack = 0 if plain else size // 100
    return Component(
        name="weights",
        low=size - slack - below - (extra.best - extra.low),
        best=size,
        high=size + slack + above + (extra.high - extra.best),
        evidence="assumed" if assumed else "exact" if plain and not extra.high else "derived",
        formula=formula,
        source="config.json and vLLM model_executor/layers/linear.py, vocab_parallel_embedding.py",
    )
