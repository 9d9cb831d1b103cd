"""The figures that a start of SGLang printed beside the plan's.

Two questions are kept apart: what the plan says from the command line alone, and what its pools are when the printed
memory before and after loading is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.contract.start_log import COMMAND_LINE, GIVEN_MEMORY, Compared
from planner.engines.sglang.plan import SglangPlan
from planner.engines.sglang.pool.pools import Pools, make_pools
from planner.units import GIB

Figures = Mapping[str, float]


def beside(
    plan: SglangPlan, measured: Figures, unknown: Sequence[str] = ()
) -> tuple[list[Compared], list[tuple[str, str]]]:
    """What the plan says of printed figures, and (mode, reason) for what cannot be compared.

    Args:
        measured: figures under the names of measured cases.
        unknown: inputs that the plan stands on and nobody stated.
    """
    left = []
    found = list(of_geometry(plan, measured))
    fraction_known = plan.deployment.mem_fraction_static is not None or not unknown
    given = list(from_given_memory(plan, measured)) if fraction_known else []
    if not given:
        left.append((GIVEN_MEMORY, why_not_given(measured)))
    if unknown:
        left.append((COMMAND_LINE, f"not known: {', '.join(unknown)}"))
        return [*found, *given], left
    return [*found, *given, *from_command_line(plan, measured)], left


def of_geometry(plan: SglangPlan, measured: Figures) -> Iterator[Compared]:
    """Bytes of the printed tokens and slots: what needs no memory figure."""
    inputs = plan.budget.stage.pool_inputs
    tokens, pool = measured.get("kv_tokens"), printed_pool(measured)
    if tokens and pool and inputs.windowed is None:
        size = inputs.full_token_bytes or inputs.cell.allocated_bytes
        yield _given("bytes of the tokens", float(tokens * size) / GIB, pool, "GiB")
    slots, states = measured.get("mamba_slots"), measured.get("mamba_ssm_gib")
    conv = measured.get("mamba_conv_gib")
    if slots and states and conv is not None:
        yield _given("bytes of the slots", (slots + 1) * inputs.slot_bytes / GIB, states + conv, "GiB")


def printed_pool(measured: Figures) -> float | None:
    """GiB of the token pool as printed."""
    keys, values = measured.get("k_size_gib"), measured.get("v_size_gib")
    return keys + values if keys is not None and values is not None else measured.get("kv_size_gib")


def given_memory(measured: Figures) -> tuple[float, float] | None:
    """(free before loading, free after) in GiB, where both are printed or follow from the weights."""
    before, after = measured.get("avail_before_load_gib"), measured.get("avail_after_load_gib")
    weights = measured.get("weights_gib")
    if before is None and after is not None and weights is not None:
        before = after + weights
    return (before, after) if before is not None and after is not None else None


def given_pools(plan: SglangPlan, measured: Figures) -> Pools | None:
    """The pools when the printed memory is put in."""
    memory = given_memory(measured)
    if memory is None:
        return None
    before, after = memory
    drafts = measured.get("draft_weights_gib") or 0
    stage = plan.budget.stage
    rest = round((after - drafts - before * (1 - plan.resolved.fraction)) * GIB) - stage.reservation_bytes
    return make_pools(rest, stage.pool_inputs)


def from_given_memory(plan: SglangPlan, measured: Figures) -> Iterator[Compared]:
    """Tokens, pools, slots and requests from the printed memory."""
    pools = given_pools(plan, measured)
    if pools is None:
        return
    tokens, pool, slots = measured.get("kv_tokens"), printed_pool(measured), measured.get("mamba_slots")
    if tokens:
        yield _given("tokens", pools.tokens, tokens, "tokens")
    if pool:
        yield _given("token pool", pools.allocated_bytes / GIB, pool, "GiB")
    if slots and pools.states is not None:
        yield _given("state slots", pools.states.slots, slots, "slots")
    requests = measured.get("max_running_requests")
    if requests:
        yield _given("running requests", pools.requests.printed, requests, "requests")


def why_not_given(measured: Figures) -> str:
    """Why nothing can be compared with the printed memory put in."""
    if given_memory(measured) is None:
        return "memory before or after loading is not printed"
    if not measured.get("kv_tokens") and printed_pool(measured) is None:
        return "no pool is printed"
    return "neither the fraction nor the card is stated"


def from_command_line(plan: SglangPlan, measured: Figures) -> Iterator[Compared]:
    """Everything that the plan says from the command line alone."""
    stage, pools = plan.budget.stage, plan.pools
    before = measured.get("avail_before_load_gib")
    if before:
        yield Compared(figure="free before loading", planned=stage.free_before() / GIB, measured=before)
    weights = measured.get("weights_gib")
    if weights:
        own = sum(part.best for part in stage.static if part.name in ("weights", "loading_remainder"))
        yield Compared(figure="weights", planned=own / GIB, measured=weights)
    tokens, slots = measured.get("kv_tokens"), measured.get("mamba_slots")
    if tokens:
        yield Compared(figure="tokens", planned=pools.tokens, measured=tokens, unit="tokens")
    if slots and pools.states is not None:
        yield Compared(figure="state slots", planned=pools.states.slots, measured=slots, unit="slots")
    requests = measured.get("max_running_requests")
    if requests:
        yield Compared(figure="running requests", planned=pools.requests.printed, measured=requests, unit="requests")
    graphs = measured.get("graph_gib")
    planned = sum(part.best for part in plan.budget.outside if part.name in ("cuda_graphs", "prefill_graphs"))
    if graphs and planned:
        yield Compared(figure="graphs", planned=planned / GIB, measured=graphs)
    if plan.deployment.mem_fraction_static is None:
        implied = implied_fraction(plan, measured)
        if implied is not None:
            yield Compared(figure="default fraction", planned=plan.resolved.fraction, measured=implied, unit="")


def implied_fraction(plan: SglangPlan, measured: Figures) -> float | None:
    """The fraction that the printed pools and memory imply: (before - after + pools) / before."""
    memory, pool = given_memory(measured), printed_pool(measured)
    inputs = plan.budget.stage.pool_inputs
    if memory is None or pool is None or plan.deployment.max_total_tokens is not None or inputs.slot_bytes:
        return None
    if inputs.cell.sized_bytes != inputs.cell.allocated_bytes:
        pool = pool * inputs.cell.sized_bytes / inputs.cell.allocated_bytes
    before, after = memory
    return (before - after + pool) / before


def _given(figure: str, planned: float, measured: float, unit: str) -> Compared:
    return Compared(figure=figure, planned=planned, measured=measured, unit=unit, mode=GIVEN_MEMORY)
