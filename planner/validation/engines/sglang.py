"""Measured starts of SGLang: from a case to the plan of the same start, and the figures side by side.

Two questions are kept apart: what the plan says from the command line alone, and what its pools are when the printed
memory before and after loading is put in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from planner.contract.start_log import COMMAND_LINE, GIVEN_MEMORY
from planner.engines.sglang.beside_log import from_command_line, from_given_memory, of_geometry, why_not_given
from planner.engines.sglang.deployment import Deployment, read_algorithm
from planner.engines.sglang.plan import SglangPlan, plan_serving
from planner.engines.sglang.tables.dates import release_of_day
from planner.engines.sglang.tables.releases import NEWEST, rules_at
from planner.errors import PlannerError, UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.model.load import load_model
from planner.model.model import Model
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.scoring import Row, Unscored, rows_of

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
        found = list(of_geometry(plan, case.figures))
        given = list(from_given_memory(plan, case.figures)) if _fraction_known(case, start, plan) else []
        found += given
        if not given:
            left.append(Unscored(case, GIVEN_MEMORY, why_not_given(case.figures)))
        if start.unknown:
            left.append(Unscored(case, COMMAND_LINE, "; ".join(start.unknown)))
        else:
            found += from_command_line(plan, case.figures)
        version, ways = str(case.given("engine_version") or ""), str(case.given("tensor_parallel") or 1)
        rows += rows_of(case, found, (case.model, "", "", ways, "1", version))
    return rows, left


def _fraction_known(case: Case, start: Start, plan: SglangPlan) -> bool:
    # up to 0.4.7 the fraction follows from the number of cards alone
    by_cards = rules_at(plan.resolved.release)["fraction"] == "parallel_size" and "24 GB" in str(case.given("gpu"))
    return plan.deployment.mem_fraction_static is not None or by_cards or not start.unknown
