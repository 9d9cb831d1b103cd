"""What a plan says beside its figures."""

from __future__ import annotations

from collections.abc import Iterable

from planner.contract.lengths import refused_note
from planner.contract.workload import Workload
from planner.engines.sglang.budget.drafts import separate_draft
from planner.engines.sglang.budget.stages import Stage
from planner.engines.sglang.pool.pools import Pools
from planner.engines.sglang.resolve import Resolved
from planner.engines.sglang.tables.releases import NEWEST, parse_release
from planner.memory.quantisation import WeightScheme
from planner.model.model import Model
from planner.units import format_size

_CAPS = {
    "asked": "--max-running-requests",
    "tokens": "the tokens of the pool",
    "states": "the state slots",
    "estimate": "the engine's estimate from tokens and context",
}


def plan_notes(
    model: Model,
    resolved: Resolved,
    scheme: WeightScheme,
    stage: Stage,
    pools: Pools,
    workload: Workload,
    *,
    said: tuple[str, ...],
) -> tuple[str, ...]:
    """Everything worth saying, each once."""
    points = workload.points
    notes = [*said, *model.spec.notes, *model.notes, *resolved.notes, *scheme.notes]
    notes += _pool_notes(resolved, stage, pools)
    refused = refused_note(points, resolved.context_length, model.longest_request)
    if refused is not None:
        notes.append(refused.replace("--max-model-len", "--context-length"))
    notes += _passed_notes(resolved)
    draft = separate_draft(model, resolved)
    if draft is not None:
        notes.append(draft.note)
    asked = resolved.asked
    if asked.already_used_bytes:
        notes.append(
            f"others hold {format_size(asked.already_used_bytes)} of each card: the engine takes its share of what is"
            " free, so that they cost the pools that much and a share of it again; the command does not say it"
        )
    if resolved.release > parse_release(NEWEST):
        notes.append(f"releases after {NEWEST} are planned by its rules")
    if asked.quantization is not None and model.spec.quantization_config is not None:
        notes.append(f"already quantised ({scheme.label}): planned as it is, without --quantization")
    if any(name == "mean" for name, _ in points):
        notes.append("the mean is no admission limit: half the time more tokens are wanted than it says")
    return tuple(dict.fromkeys(notes))


def _pool_notes(resolved: Resolved, stage: Stage, pools: Pools) -> Iterable[str]:
    inputs, requests = stage.pool_inputs, pools.requests
    if 0 < pools.tokens < resolved.context_length:
        yield (
            f"--context-length {resolved.context_length:,} is no promise: the pool holds {pools.tokens:,} tokens, so"
            " longer requests are refused or cut, and the engine does not warn"
        )
    if requests.capped_by == "states" and pools.states is not None and inputs.states is not None:
        yield (
            f"{requests.count} requests run at once because of the state slots: {pools.states.slots} slots,"
            f" {inputs.states.per_request} a request; raise --mamba-full-memory-ratio or --max-mamba-cache-size"
        )
    elif requests.capped_by == "tokens" and pools.tokens:
        yield f"{requests.count} requests run at once because of {_CAPS[requests.capped_by]}"
    if inputs.cell.sized_bytes != inputs.cell.allocated_bytes:
        more = inputs.cell.allocated_bytes / inputs.cell.sized_bytes - 1
        yield (
            f"SGLang {resolved.asked.engine_version} sizes the pool of this model with raw rows and allocates scaled"
            f" ones: {more:.0%} more than its budget"
        )
    if resolved.aiter:
        yield "AITER kernels with a context above 8192: the engine lowers the fraction by .85, a given one too"
    if resolved.spread.attention_ranks > 1 or resolved.asked.dp_size > 1:
        yield "tokens and slots are those of one data-parallel rank; the concurrency counts all of them"


def _passed_notes(resolved: Resolved) -> Iterable[str]:
    from planner.engines.sglang.tables.flags import without_effect

    plain, unclear = without_effect(resolved.asked.passed)
    if plain:
        yield f"no effect on memory: {', '.join(plain)}"
    if unclear:
        yield f"not known whether memory depends on it: {', '.join(unclear)}"
