"""The figures that the planner is held to on measured vLLM starts, and what each start is counted under.

The headline is quality A (every input stated) outside the one campaign that the terms were derived on; a start that ran
and that the planner refuses, or calls unknown, counts as a miss. Unified memory is judged by its band, not its middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from planner.contract.start_log import COMMAND_LINE
from planner.engines.vllm.budget.runner import situation_of
from planner.engines.vllm.log.beside import GIVEN_KV
from planner.errors import PlannerError
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.scoring import Row
from planner.validation.starts import Start, read_start

_CAMPAIGN: Final = "llmd-"
_UNIFIED: Final = "unified"


@dataclass(frozen=True, slots=True)
class Bound:
    """A share of starts that must lie within a distance: its figure, how the distance is said, and the least share."""

    component: str
    mode: str
    said: str
    within: Callable[[Row], bool]
    least: float


BOUNDS: Final = (
    Bound(
        "kv_cache",
        COMMAND_LINE,
        "within 1% or 0.35 GiB",
        lambda row: abs(row.error) <= 0.01 or abs(row.difference) <= 0.35,
        0.80,
    ),
    Bound("kv_cache", COMMAND_LINE, "within 5%", lambda row: abs(row.error) <= 0.05, 0.95),
    Bound("activation_peak", COMMAND_LINE, "within 5%", lambda row: abs(row.error) <= 0.05, 0.90),
    Bound("weights", COMMAND_LINE, "within 0.5%", lambda row: abs(row.error) <= 0.005, 0.97),
    Bound("tokens", GIVEN_KV, "within 0.5%", lambda row: abs(row.error) <= 0.005, 0.98),
)
MEDIAN_LIMIT: Final = 0.01
CAMPAIGN_MEAN: Final = 0.0017
CAMPAIGN_WORST: Final = 0.04
BAND_INSIDE: Final = 0.8
BAND_WIDTH_BYTES: Final = 6 * GIB


def is_campaign(case: Case) -> bool:
    """One of the 0.19.0 starts on H100 that the terms were derived on."""
    return case.id.startswith(_CAMPAIGN)


def card_class(start: Start) -> str:
    """The architecture of the start's card, "unified" where memory is shared with the host."""
    card = start.deployment.gpu
    if card is None or not card.architecture:
        return "not stated"
    return _UNIFIED if card.unified_memory else card.architecture


def link_class(start: Start) -> str:
    """How the start's cards reach each other; "one card" where there is one."""
    if start.deployment.tensor_parallel_size * start.deployment.pipeline_parallel_size == 1:
        return "one card"
    plan = start.plan()
    where = situation_of(plan.model, plan.resolved)
    return {"peer": "PCIe, peer access", "none": "PCIe"}.get(where.link, where.link)


def headline(rows: Iterable[Row]) -> list[Row]:
    """Quality A, outside the campaign, on cards with memory of their own."""
    return [row for row in rows if row.case.quality == "A" and not is_campaign(row.case) and not is_unified(row.case)]


def is_unified(case: Case) -> bool:
    """The card shares its memory with the host."""
    start = read_start(case)
    return not isinstance(start, str) and card_class(start) == _UNIFIED


@dataclass(frozen=True, slots=True)
class Reached:
    """A bound, and how many of how many starts are within."""

    bound: Bound
    inside: int
    n: int

    @property
    def share(self) -> float:
        return self.inside / self.n if self.n else 0.0


def reached(rows: Sequence[Row]) -> list[Reached]:
    """Every bound on the headline starts."""
    mine = headline(rows)
    found = []
    for bound in BOUNDS:
        figures = [row for row in mine if row.component == bound.component and row.mode == bound.mode]
        found.append(Reached(bound, sum(bound.within(row) for row in figures), len(figures)))
    return found


def median_error(rows: Sequence[Row]) -> tuple[float, int]:
    """(median error of the KV memory, n) of the headline starts."""
    errors = [abs(row.error) for row in headline(rows) if row.component == "kv_cache"]
    return (median(errors), len(errors)) if errors else (0.0, 0)


@dataclass(frozen=True, slots=True)
class Banded:
    """A start on unified memory: the planned band of its KV memory, and what was measured, in bytes."""

    case: Case
    low: int
    high: int
    measured: int

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high


def unified_bands(cases: Iterable[Case]) -> list[Banded]:
    """Every start on unified memory whose inputs are known, with its band."""
    found = []
    for case in cases:
        measured = case.number("kv_cache_gib")
        start = read_start(case)
        if measured is None or isinstance(start, str) or start.unknown or card_class(start) != _UNIFIED:
            continue
        try:
            plan = start.plan()
        except PlannerError:
            continue
        low, high = plan.budget.available("high"), plan.budget.available("low")
        found.append(Banded(case, low, high, round(measured * GIB)))
    return found
