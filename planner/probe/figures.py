"""What was planned, what was measured, and how far they are apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from planner.model.shallow.depth import Depths
from planner.probe.backends.base import Device
from planner.probe.safety import OutOfMemory

PHASE_PEAKS: Final = ("forward_peak", "backward_peak", "step_peak")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One quantity, in bytes.

    Args:
        planned: None where the plan has no such term.
        measured: None where the run did not get there, or the device does not say.
        judged: counts for the verdict; others are shown only.
    """

    name: str
    planned: int | None
    measured: int | None
    judged: bool = True

    @property
    def error(self) -> float | None:
        """Signed relative error of the plan; None without both."""
        if self.planned is None or not self.measured:
            return None
        return self.planned / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One probe: the workload, the figures, and what is needed to repeat it.

    Args:
        command: "serve", "train" or "card".
        workload: the inputs after defaults were applied.
        depths: at which depths it ran; figures are of the full depth, extrapolated when they differ.
        at_depth: the same figures as measured at the deeper of the two depths.
        used_before_bytes, used_peak_bytes: the driver's account of the device (of this process for the CPU).
    """

    command: str
    model: str
    config: str
    workload: Mapping[str, object]
    depths: Depths
    figures: tuple[Figure, ...]
    at_depth: tuple[Figure, ...]
    device: Device
    used_before_bytes: int
    used_peak_bytes: int
    versions: Mapping[str, str]
    out_of_memory: OutOfMemory | None = None
    notes: tuple[str, ...] = field(default=())

    def within(self, tolerance: float) -> bool:
        """Every judged figure was measured, and the plan is no further from it than this share of it."""
        judged = [figure for figure in self.figures if figure.judged and figure.planned is not None]
        return self.out_of_memory is None and all(
            figure.error is not None and abs(figure.error) <= tolerance for figure in judged if figure.planned
        )


def figures_of(
    planned: Mapping[str, int | None], measured: Mapping[str, int], *, judged: Iterable[str]
) -> list[Figure]:
    """The figures in the order of the plan, then what was measured besides."""
    names = [*planned, *(name for name in measured if name not in planned)]
    counted = set(judged)
    return [
        Figure(name=name, planned=planned.get(name), measured=measured.get(name), judged=name in counted)
        for name in names
    ]


def extrapolated(
    shallow: Iterable[Figure], deep: Iterable[Figure], whole_plan: Mapping[str, int | None], depths: Depths
) -> tuple[Figure, ...]:
    """Figures at full depth: the whole model's plan, and what two measured depths say by a straight line.

    The peak of all phases is the largest of theirs at full depth: which phase peaks can change with depth.
    """
    below = {figure.name: figure.measured for figure in shallow}
    found = []
    for figure in deep:
        low, high = below.get(figure.name), figure.measured
        measured = None if low is None or high is None else depths.extrapolate(low, high)
        found.append(replace(figure, planned=whole_plan.get(figure.name), measured=measured))
    peaks = [figure.measured for figure in found if figure.name in PHASE_PEAKS and figure.measured is not None]
    if len(peaks) == len(PHASE_PEAKS):
        found = [replace(one, measured=max(peaks)) if one.name == "peak_allocated" else one for one in found]
    return tuple(found)
