"""Measured starts of SGLang: from a case to the plan of the same start, and the figures side by side.

Two questions are kept apart: what the plan says from the command line alone, and what its pools are when the printed
memory before and after loading is put in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from planner.engines.sglang.deployment import Deployment, read_algorithm
from planner.engines.sglang.plan import SglangPlan, plan_serving
from planner.engines.sglang.pool.pools import Pools, make_pools
from planner.engines.sglang.tables.dates import release_of_day
from planner.engines.sglang.tables.releases import NEWEST, rules_at
from planner.errors import PlannerError, UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.model.load import load_model
from planner.model.model import Model
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.scoring import COMMAND_LINE, Row, Unscored

GIVEN_MEMORY: Final = "given memory"
_EXACT: Final = re.compile(r"(0\.\d+\.\d+(?:\.post\d+)?)(?![\dx]|\.\d|-0)")
_DAY: Final = re.compile(r"20\d\d-\d\d-\d\d")
_ANY_CARD_BYTES: Final = 48 * GIB
# names of cases that are not the engine's; its own are taken as they are
_FIELDS: Final = {
    "tensor_parallel": "tp_size",
    "pipeline_parallel": "pp_size",
    "disaggregation": "disaggregation_mode",
    **{
        field.name: field.name
        for field in fields(Deployment)
        if field.name not in ("gpu", "gpu_memory_bytes", "engine_version", "allow_longer_context", "passed")
    },
}
# read below, or without effect on memory
_ELSEWHERE: Final = (
    *("engine", "engine_version", "gpu", "gpu_count", "gpu_memory_gib", "quantization", "speculative_algorithm"),
    *("dp_attention", "data_parallel", "expert_parallel", "moe_runner_backend"),
)
# what a plan leaves out: experts on the host, adapters of unknown rank
_NOT_PLANNED: Final = {"offload": "part of the experts lies on the host", "lora": "the adapters' rank is not stated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A case as it can be planned.

    Args:
        release_stated: the release was printed; otherwise it is the one of the log's day, or the newest.
        unknown: inputs that the command line would need and that are not known.
    """

    case: Case
    model: Model
    deployment: Deployment
    release_stated: bool
    unknown: tuple[str, ...]


def read_start(case: Case) -> Start | str:
    """The start, or the reason why it cannot be planned at all."""
    if case.config is None:
        return "no config: the model could not be identified"
    try:
        model = load_model(case.config)
    except PlannerError as error:
        return f"model refused: {error}"
    gpu, total = _card(case)
    version, stated = _release(str(case.given("engine_version") or ""))
    unknown = [reason for name, reason in _NOT_PLANNED.items() if case.given(name)]
    if gpu is None:
        unknown.append("the card is not named")
    settings: dict[str, Any] = {}
    for name, value in case.deployment.items():
        if value is None or name in _NOT_PLANNED or name in _ELSEWHERE:
            continue
        if name in _FIELDS:
            settings[_FIELDS[name]] = value
        else:
            unknown.append(f"{name} is not understood")
    tensor = settings.setdefault("tp_size", case.given("gpu_count") or 1)
    ranks, experts = case.given("data_parallel"), case.given("expert_parallel")
    if case.given("dp_attention"):
        # a start that says only that it is on has a rank on every card
        settings |= {"dp_size": tensor if ranks in (None, True) else ranks, "enable_dp_attention": True}
        if tensor == 1:
            return "the number of cards is not stated"
    if experts:
        settings["ep_size"] = tensor if experts is True else experts
    if case.given("speculative_algorithm"):
        settings["speculative_algorithm"] = read_algorithm(str(case.given("speculative_algorithm")), "")
    if model.spec.quantization_config is None and case.given("quantization"):
        settings["quantization"] = case.given("quantization")
    try:
        deployment = Deployment(
            gpu=gpu or unnamed_gpu(total or _ANY_CARD_BYTES),
            gpu_memory_bytes=total or _ANY_CARD_BYTES,
            engine_version=version,
            allow_longer_context=True,
            **settings,
        )
    except (TypeError, PlannerError) as error:
        return f"flags not understood: {error}"
    return Start(case=case, model=model, deployment=deployment, release_stated=stated, unknown=tuple(unknown))


def _card(case: Case) -> tuple[Gpu | None, int | None]:
    name = case.given("gpu")
    if not isinstance(name, str) or "class" in name:
        return None, None
    for text in (name, re.sub(r"\(.*?\)|\d+ ?GB", " ", name)):
        try:
            card = find_gpu(" ".join(text.split()))
        except UnknownGpu:
            continue
        return (card, card.reported_memory_bytes) if card.reported_memory_bytes else (None, None)
    return None, None


def _release(text: str) -> tuple[str, bool]:
    exact = _EXACT.match(text)
    if exact and not exact[1].startswith("0.0"):
        return exact[1], True
    day = _DAY.search(text)
    return (release_of_day(day[0]) if day else NEWEST), False


def score(cases: Iterable[Case]) -> tuple[list[Row], list[Unscored]]:
    """Every row that can be made of these cases, and why others cannot."""
    rows: list[Row] = []
    left: list[Unscored] = []
    for case in cases:
        start = read_start(case)
        if isinstance(start, str):
            left.append(Unscored(case, "all", start))
            continue
        try:
            plan = plan_serving(start.model, start.deployment)
        except PlannerError as error:
            left.append(Unscored(case, "all", f"refused: {error}"))
            continue
        rows += geometry_rows(case, plan)
        given = list(given_rows(case, start, plan))
        rows += given
        if not given:
            left.append(Unscored(case, GIVEN_MEMORY, _why_not_given(case, start)))
        if start.unknown:
            left.append(Unscored(case, COMMAND_LINE, "; ".join(start.unknown)))
        else:
            rows += command_rows(case, start, plan)
    return rows, left


def _row(case: Case, component: str, mode: str, planned: float, measured: float, unit: str) -> Row:
    group = (case.model, "", "", str(case.given("tensor_parallel") or 1), "1", str(case.given("engine_version") or ""))
    return Row(case=case, component=component, mode=mode, planned=planned, measured=measured, unit=unit, group=group)


def geometry_rows(case: Case, plan: SglangPlan) -> Iterator[Row]:
    """Bytes of the printed tokens and slots: what needs no memory figure."""
    inputs = plan.budget.stage.pool_inputs
    tokens, pool = case.number("kv_tokens"), printed_pool(case)
    if tokens and pool and inputs.windowed is None:
        size = inputs.full_token_bytes or inputs.cell.allocated_bytes
        yield _row(case, "bytes of the tokens", GIVEN_MEMORY, float(tokens * size) / GIB, pool, "GiB")
    slots, states = case.number("mamba_slots"), case.number("mamba_ssm_gib")
    conv = case.number("mamba_conv_gib")
    if slots and states and conv is not None:
        yield _row(
            case, "bytes of the slots", GIVEN_MEMORY, (slots + 1) * inputs.slot_bytes / GIB, states + conv, "GiB"
        )


def printed_pool(case: Case) -> float | None:
    """GiB of the token pool as printed."""
    keys, values = case.number("k_size_gib"), case.number("v_size_gib")
    return keys + values if keys is not None and values is not None else case.number("kv_size_gib")


def given_memory(case: Case) -> tuple[float, float] | None:
    """(free before loading, free after) in GiB, where both are printed or follow from the weights."""
    before, after = case.number("avail_before_load_gib"), case.number("avail_after_load_gib")
    weights = case.number("weights_gib")
    if before is None and after is not None and weights is not None:
        before = after + weights
    return (before, after) if before is not None and after is not None else None


def given_pools(case: Case, start: Start, plan: SglangPlan) -> Pools | None:
    """The pools when the printed memory is put in."""
    memory = given_memory(case)
    stated = case.given("mem_fraction_static") is not None
    # up to 0.4.7 the fraction follows from the number of cards alone
    by_cards = rules_at(plan.resolved.release)["fraction"] == "parallel_size" and "24 GB" in str(case.given("gpu"))
    if memory is None or not (stated or by_cards or not start.unknown):
        return None
    before, after = memory
    drafts = case.number("draft_weights_gib") or 0
    stage = plan.budget.stage
    rest = round((after - drafts - before * (1 - plan.resolved.fraction)) * GIB) - stage.reservation_bytes
    return make_pools(rest, stage.pool_inputs)


def given_rows(case: Case, start: Start, plan: SglangPlan) -> Iterator[Row]:
    """Tokens, pools, slots and requests from the printed memory."""
    pools = given_pools(case, start, plan)
    if pools is None:
        return
    tokens, pool, slots = case.number("kv_tokens"), printed_pool(case), case.number("mamba_slots")
    if tokens:
        yield _row(case, "tokens", GIVEN_MEMORY, pools.tokens, tokens, "tokens")
    if pool:
        yield _row(case, "token pool", GIVEN_MEMORY, pools.allocated_bytes / GIB, pool, "GiB")
    if slots and pools.states is not None:
        yield _row(case, "state slots", GIVEN_MEMORY, pools.states.slots, slots, "slots")
    requests = case.number("max_running_requests")
    if requests:
        yield _row(case, "running requests", GIVEN_MEMORY, pools.requests.printed, requests, "requests")


def _why_not_given(case: Case, start: Start) -> str:
    if given_memory(case) is None:
        return "memory before or after loading is not printed"
    if not case.number("kv_tokens") and printed_pool(case) is None:
        return "no pool is printed"
    return "neither the fraction nor the card is stated"


def command_rows(case: Case, start: Start, plan: SglangPlan) -> Iterator[Row]:
    """Everything that the plan says from the command line alone."""
    stage, pools = plan.budget.stage, plan.pools
    memory = given_memory(case)
    before = case.number("avail_before_load_gib")
    if before:
        yield _row(case, "free before loading", COMMAND_LINE, stage.free_before() / GIB, before, "GiB")
    weights = case.number("weights_gib")
    if weights:
        own = sum(part.best for part in stage.static if part.name in ("weights", "loading_remainder"))
        yield _row(case, "weights", COMMAND_LINE, own / GIB, weights, "GiB")
    tokens, slots = case.number("kv_tokens"), case.number("mamba_slots")
    if tokens:
        yield _row(case, "tokens", COMMAND_LINE, pools.tokens, tokens, "tokens")
    if slots and pools.states is not None:
        yield _row(case, "state slots", COMMAND_LINE, pools.states.slots, slots, "slots")
    requests = case.number("max_running_requests")
    if requests:
        yield _row(case, "running requests", COMMAND_LINE, pools.requests.printed, requests, "requests")
    graphs = case.number("graph_gib")
    planned = sum(part.best for part in plan.budget.outside if part.name in ("cuda_graphs", "prefill_graphs"))
    if graphs and planned:
        yield _row(case, "graphs", COMMAND_LINE, planned / GIB, graphs, "GiB")
    if memory is not None and case.given("mem_fraction_static") is None:
        implied = implied_fraction(case, plan)
        if implied is not None:
            yield _row(case, "default fraction", COMMAND_LINE, plan.resolved.fraction, implied, "")


def implied_fraction(case: Case, plan: SglangPlan) -> float | None:
    """The fraction that the printed pools and memory imply: (before - after + pools) / before."""
    memory, pool = given_memory(case), printed_pool(case)
    inputs = plan.budget.stage.pool_inputs
    if memory is None or pool is None or plan.deployment.max_total_tokens is not None or inputs.slot_bytes:
        return None
    if inputs.cell.sized_bytes != inputs.cell.allocated_bytes:
        pool = pool * inputs.cell.sized_bytes / inputs.cell.allocated_bytes
    before, after = memory
    return (before - after + pool) / before
