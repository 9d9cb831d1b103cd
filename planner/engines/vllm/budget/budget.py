"""The budget of one GPU: what vLLM subtracts from total x utilisation before the rest becomes KV cache.

    available_kv = requested - weights - activation_peak - non_torch - (graph estimate from 0.20)

Source: vLLM `v1/worker/gpu_worker.py` determine_available_memory, by version as `EngineProfile.accounting` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from planner.contract.component import Component, Side, exact, total
from planner.engines.vllm.budget.activation import activation_peak, kept_buffers, per_layer_width
from planner.engines.vllm.budget.adapters import lora_slots
from planner.engines.vllm.budget.engine_layout import absorbed_bytes, engine_spec
from planner.engines.vllm.budget.graphs import FIRST_GRAPH_PROBE, graph_components
from planner.engines.vllm.budget.runner import Term, samples, situation_of, uses_v2_runner
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.storage import is_plain
from planner.engines.vllm.tables.overhead import overhead
from planner.engines.vllm.tables.profile import parse_version
from planner.engines.vllm.tables.version_band import version_band
from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import unnamed_gpu
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import WeightScheme, quantises_inputs
from planner.memory.weights import StageWeights, stage_weights
from planner.model.model import Model
from planner.model.tensor import Role
from planner.units import format_size, gib

_LATENT_BACKEND_WORKSPACE: Final = (0, 10, 0)
# V0 loads the adapters' slots inside the measured window (worker/model_runner.py load_model 0.8.5)
_V0_COUNTS_SLOTS: Final = (0, 8, 0)
# vLLM's own all-reduce reads the other cards' memory
_PEERS: Final = ("nvlink", "xgmi", "peer")
_PENALTIES_SOURCE: Final = "vLLM 0.33.0 v1/worker/gpu/sample/penalties.py"


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
    inside = [_weight_component(model, resolved, scheme, weights, layers)]
    adapters = lora_slots(model, resolved, parallelism, layers=layers, first=first, last=last)
    slots_counted = resolved.profile.runner != "v0" or parse_version(resolved.profile.version) >= _V0_COUNTS_SLOTS
    if adapters is not None and slots_counted:
        inside.append(adapters)
    inside.append(
        activation_peak(
            model, resolved, parallelism, layers=layers, last=last, quantised_inputs=quantises_inputs(scheme)
        )
    )
    inside.append(_non_torch(model, resolved))
    graphs = graph_components(model, resolved, layers)
    outside: list[Component] = []
    if resolved.profile.accounting not in ("context", "device_used"):
        # those versions count it inside the fraction
        outside.append(_context(resolved))
    if parallelism.tensor_parallel_size * stages > 1 and not resolved.profile.nccl_in_non_torch:
        outside.append(_communicators(model, resolved))
    if adapters is not None and not slots_counted:
        # allocated after the weights are measured and before the profile: in no term
        outside.append(adapters)
    if resolved.profile.accounting == "consumed":
        inside.append(_consumed_extra(model, resolved, kept_buffers(model, resolved, parallelism, layers)))
    elif uses_v2_runner(model, resolved):
        # made before the weights are loaded: in no term until 0.28
        size, formula = _penalties(model, resolved)
        outside.append(exact("persistent_buffers", size, formula, _PENALTIES_SOURCE))
    if graphs is not None:
        estimate, actual = graphs
        silent = uses_v2_runner(model, resolved) and not resolved.profile.v2_graph_estimate
        counted = resolved.profile.graphs_inside
        if (
            resolved.asked.estimate_cudagraphs is not None
            and parse_version(resolved.profile.version) >= FIRST_GRAPH_PROBE
        ):
            counted = resolved.asked.estimate_cudagraphs
        if counted and not silent:
            inside.append(estimate)
        else:
            outside.append(actual)
    outside.append(_post_profile(model, resolved))
    if resolved.asked.already_used_bytes:
        used = resolved.asked.already_used_bytes
        other = exact("other_processes", used, f"stated: {format_size(used)}", "--already-used")
        (inside if resolved.profile.accounting == "device_used" else outside).append(other)
    if resolved.profile.accounting == "device_used":
        inside.append(_context(resolved))
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
        inside=tuple(inside),
        outside=tuple(outside),
    )


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
        asked.pools,
    )
    found = model.memo.get(key)
    if not isinstance(found, StageWeights):
        found = stage_weights(
            engine_spec(model, exported=asked.quantization is not None, pools=asked.pools),
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
    model: Model, resolved: Resolved, scheme: WeightScheme, weights: StageWeights, layers: slice
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
        low=size - slack - (extra.best - extra.low),
        best=size,
        high=size + slack + (extra.high - extra.best),
        evidence="exact" if plain and not extra.high else "derived",
        formula=formula,
        source="config.json and vLLM model_executor/layers/linear.py, vocab_parallel_embedding.py",
    )


def _table(model: Model, resolved: Resolved, quantity: str, what: str) -> Component:
    row = overhead(quantity, situation_of(model, resolved))
    where = "non_torch" if resolved.profile.nccl_in_non_torch else "nccl_outside"
    saved = _all_reduce_saved(model, resolved) if quantity == where else 0
    if saved:
        what += f", without the custom all-reduce's {format_size(saved)}"
    return Component(
        name=quantity,
        low=row.low - saved,
        best=row.best - saved,
        high=row.high - saved,
        evidence="measured" if row.n else "assumed",
        formula=f"{what}: {format_size(row.best)} ({format_size(row.low)} to {format_size(row.high)}, n={row.n})",
        source=row.source,
    )


def _non_torch(model: Model, resolved: Resolved) -> Component:
    """Driver memory that comes during loading and profiling; in 0.6.3 to 0.6.5 the context counts with it."""
    found = _table(model, resolved, "non_torch", "driver memory beyond torch")
    if resolved.profile.accounting != "context":
        return found
    context = _context(resolved)
    return Component(
        name="non_torch",
        low=found.low + context.low,
        best=found.best + context.best,
        high=found.high + context.high,
        evidence=context.evidence,
        formula=f"{found.formula} + {context.formula}",
        source=f"{found.source}; {context.source}",
    )


def _communicators(model: Model, resolved: Resolved) -> Component:
    return _table(model, resolved, "nccl_outside", "communicators set up before the first snapshot")


def _all_reduce_saved(model: Model, resolved: Resolved) -> int:
    """Bytes of vLLM's own all-reduce, which exists with peer access only, when it is switched off."""
    where = situation_of(model, resolved)
    own = where.gpus > 1 and where.link in _PEERS
    return overhead("custom_all_reduce", where).best if own and resolved.asked.disable_custom_all_reduce else 0


def _context(resolved: Resolved) -> Component:
    context = cuda_context(resolved.asked.gpu or unnamed_gpu(resolved.gpu_memory_bytes))
    return Component(
        name="context",
        low=context.low_bytes,
        best=context.best_bytes,
        high=context.high_bytes,
        evidence=context.evidence,
        formula=f"CUDA context of one process: {format_size(context.best_bytes)} (n={context.count})",
        source=context.source,
    )


def _post_profile(model: Model, resolved: Resolved) -> Component:
    config = model.spec.quantization_config
    card = resolved.asked.gpu
    if (
        config is not None
        and config.get("quant_method") == "mxfp4"
        and card is not None
        and card.architecture == "Hopper"
    ):
        version = parse_version(resolved.profile.version)
        if version[:2] == (0, 19):
            row = overhead("post_profile_mxfp4", situation_of(model, resolved))
            ways = resolved.asked.tensor_parallel_size
            return Component(
                name="post_profile",
                low=row.low // ways,
                best=row.best // ways,
                high=row.high // ways,
                evidence="measured",
                formula=f"warm-up of the MXFP4 expert kernels: {format_size(row.best)} / {ways} GPUs (n={row.n})",
                source=row.source,
            )
    return _table(model, resolved, "post_profile", "buffers made after profiling")


def _penalties(model: Model, resolved: Resolved) -> tuple[int, str]:
    """The V2 runner's penalty counters: int32 and one bit for every request and word."""
    cells = resolved.max_num_seqs * model.spec.vocab_size
    return 4 * cells + cells // 8, f"{resolved.max_num_seqs:,} x {model.spec.vocab_size:,} x (4 + 1/8)"


def _consumed_extra(model: Model, resolved: Resolved, kept: tuple[Term, ...]) -> Component:
    """What "consumed" accounting counts beside weights and driver memory (0.27 on).

    Buffers that the profile run leaves, the V2 runner's penalties, and rounding of segments.
    """
    extra = overhead("consumed_extra", situation_of(model, resolved))
    size = sum(term.size for term in kept)
    parts = [f"{term} GiB" for term in kept]
    if uses_v2_runner(model, resolved) and samples(model, resolved):
        penalties, counted = _penalties(model, resolved)
        size += penalties
        parts.append(f"penalties {counted}")
    parts.append(f"segment rounding {format_size(extra.best)}")
    return Component(
        name="persistent_buffers",
        low=size + extra.low,
        best=size + extra.best,
        high=size + extra.high,
        evidence="derived",
        formula=" + ".join(parts),
        source=f"vLLM 0.28.0 utils/mem_utils.py; {_PENALTIES_SOURCE}; {extra.source}",
    )
