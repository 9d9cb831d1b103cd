"""Scoring the planner against measured starts: one row for each figure that was printed.

Two questions are kept apart: what the planner says from the command line alone, and what it says of the cache layout
when the printed KV memory is put in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from planner.contract.start_log import Compared
from planner.engines.vllm.log.beside import beside
from planner.engines.vllm.plan import VllmPlan
from planner.errors import PlannerError
from planner.units import GIB
from planner.validation.cases import Case
from planner.validation.probed import PROBE, is_probed, measured_figure, planned_figures
from planner.validation.starts import Start, read_start

# The mode of a value that no plan is compared with
MEASURED: Final = "measured"
# Measured values that a plan has a figure for
_FIGURES: Final = (
    "weights_gib",
    "activation_peak_gib",
    "non_torch_gib",
    "kv_cache_gib",
    "num_gpu_blocks",
    "kv_tokens",
    "max_concurrency",
    "needed_kv_gib_for_one_request",
    "estimated_max_len",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one case: planned against measured.

    Args:
        component: "weights", "activation_peak", "non_torch", "kv_cache", "concurrency", "tokens", ...
        mode: COMMAND_LINE, GIVEN_KV or PROBE.
        unit: "GiB", "tokens" or "x".
        group: what counts as the same start (model, dtype, storage, parallelism, version).
    """

    case: Case
    component: str
    mode: str
    planned: float
    measured: float
    unit: str
    group: tuple[str, ...]

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.planned / self.measured - 1 if self.measured else math.inf

    @property
    def difference(self) -> float:
        """Signed error in the figure's unit."""
        return self.planned - self.measured


@dataclass(frozen=True, slots=True)
class Unscored:
    """A case, or a mode of it, that could not be scored, and why."""

    case: Case
    mode: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Errors of a set of rows, as fractions; `optimistic` is the share that promises more than was measured."""

    n: int
    mean_absolute: float
    median: float
    percentile_90: float
    worst: float
    worst_case: str
    signed_mean: float
    optimistic: float
    mean_absolute_difference: float
    worst_difference: float


def score(cases: Iterable[Case]) -> tuple[list[Row], list[Unscored]]:
    """Every row that can be made of these cases, and every reason why one cannot."""
    rows: list[Row] = []
    unscored: list[Unscored] = []
    for case in cases:
        if is_probed(case):
            rows += _probed(case, unscored)
            continue
        start = read_start(case)
        if isinstance(start, str):
            unscored.append(Unscored(case, "all", start))
            continue
        try:
            plan = start.plan()
        except PlannerError as error:
            unscored.append(Unscored(case, "all", f"refused: {error}"))
            continue
        found, left = score_start(start, plan)
        left += _no_figures(case, _FIGURES)
        if not found and not left:
            left = [Unscored(case, "all", "prints no figure that a plan has")]
        rows += found
        unscored += left
    return rows, unscored


def _no_figures(case: Case, names: Iterable[str]) -> list[Unscored]:
    """The measured values of these names that are null, or 0, which no error can be taken of."""
    found = []
    for name in names:
        value = case.measured.get(name, "absent")
        if value is None or value == 0:
            found.append(Unscored(case, MEASURED, f"{name} is {'null' if value is None else '0'}"))
    return found


def score_start(start: Start, plan: VllmPlan) -> tuple[list[Row], list[Unscored]]:
    """Every row of one start and its plan, and what could not be scored."""
    compared, left = beside(plan, start.case.figures, start.unknown)
    asked = start.deployment
    group = (
        start.case.config or "",
        asked.dtype,
        asked.quantization or "",
        str(asked.tensor_parallel_size),
        str(asked.pipeline_parallel_size),
        str(asked.data_parallel_size),
        asked.engine_version,
    )
    return rows_of(start.case, compared, group), [Unscored(start.case, mode, reason) for mode, reason in left]


def rows_of(case: Case, compared: Iterable[Compared], group: tuple[str, ...]) -> list[Row]:
    """What an engine compared, as rows of a case."""
    return [
        Row(
            case=case,
            component=one.figure,
            mode=one.mode,
            planned=one.planned,
            measured=one.measured,
            unit=one.unit,
            group=group,
        )
        for one in compared
    ]


def _probed(case: Case, unscored: list[Unscored]) -> list[Row]:
    """A record of the probe: a row for every figure that was planned and measured."""
    try:
        planned = planned_figures(case)
    except PlannerError as error:
        unscored.append(Unscored(case, PROBE, f"refused: {error}"))
        return []
    if case.measured.get("error"):
        unscored.append(Unscored(case, PROBE, f"ran out of memory in {case.measured.get('error_phase')}"))
    unscored += _no_figures(case, [f"{name}_gib" for name in planned])
    found = []
    for name, size in planned.items():
        measured = measured_figure(case, name)
        if measured:
            group = (case.id, str(case.given("probe")), str(case.given("engine_version")))
            found.append(
                Row(
                    case=case,
                    component=name,
                    mode=PROBE,
                    planned=size / GIB,
                    measured=measured,
                    unit="GiB",
                    group=group,
                )
            )
    return found


def once_per_start(rows: Sequence[Row]) -> list[Row]:
    """One row for each distinct (model, dtype, storage, parallelism, version) and figure: the one with median error."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.component, row.mode, *row.group), []).append(row)
    return [sorted(group, key=lambda row: abs(row.error))[(len(group) - 1) // 2] for group in groups.values()]


def statistics(rows: Sequence[Row]) -> Statistics | None:
    """Errors over these rows; None when there are none. A figure that must be low to be safe counts as optimistic
    when it is below what was measured (weights, peaks), one that must be high when it is above (cache, concurrency)."""
    finite = [row for row in rows if math.isfinite(row.error)]
    if not finite:
        return None
    errors = sorted(abs(row.error) for row in finite)
    worst = max(finite, key=lambda row: abs(row.error))
    return Statistics(
        n=len(finite),
        mean_absolute=fmean(errors),
        median=median(errors),
        percentile_90=errors[min(len(errors) - 1, math.ceil(0.9 * len(errors)) - 1)],
        worst=worst.error,
        worst_case=worst.case.id,
        signed_mean=fmean(row.error for row in finite),
        optimistic=sum(_optimistic(row) for row in finite) / len(finite),
        mean_absolute_difference=fmean(abs(row.difference) for row in finite),
        worst_difference=max((row.difference for row in finite), key=abs),
    )


_SAFE_WHEN_HIGH: Final = ("weights", "activation_peak", "non_torch", "needed for one request")


def _optimistic(row: Row) -> bool:
    return row.difference < 0 if row.component in _SAFE_WHEN_HIGH else row.difference > 0
