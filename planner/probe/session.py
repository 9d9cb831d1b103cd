"""A whole measurement: the depths to run, room for them, the runs, and the comparison with the plan."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol

from planner.errors import UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.model.model import Model
from planner.model.shallow.depth import Depths
from planner.model.shallow.subject import Subject
from planner.probe import serve, train
from planner.probe.backends.base import Device, Meter
from planner.probe.backends.choice import meter_for
from planner.probe.extras import versions
from planner.probe.figures import Measurement, extrapolated, figures_of
from planner.probe.safety import OutOfMemory, out_of_memory, require_room
from planner.training.generation import Generation, generation_bytes
from planner.training.outside import workspace_bytes
from planner.training.plain_loop import plain_loop_bytes
from planner.training.recipe import Recipe

Planned = Mapping[str, int | None]
_PEAKS: Final = ("prefill_peak", "peak_allocated", "weights")


class Run(Protocol):
    """A workload that fills `measured` as it goes and says in `phase` where it is."""

    measured: dict[str, int]
    phase: str

    def run(self) -> None:
        """Do it."""
        ...


def measure_serve(
    subject: Subject, workload: Generation, *, device: str = "auto", layers: int | None = None, force: bool = False
) -> Measurement:
    """Prefill and decode on the device, beside the plan of the same.

    Args:
        layers: about how many layers to run with; the rest is extrapolated. None: all.
        force: run even when the plan does not fit in what is free.

    Raises:
        PlannerError: options out of range, or it cannot be run here; says why.
    """

    def plan(model: Model, exact_sizes: bool, workspace: int) -> Planned:
        return generation_bytes(model, workload, exact_sizes=exact_sizes, workspace_bytes=workspace)

    def run(meter: Meter, model: Model, values: Mapping[str, object]) -> Run:
        return serve.ServeRun(meter, values, workload)

    return _Session(subject, "serve", workload.inputs(), serve.JUDGED, plan, run, device, layers, force).measure()


def measure_train(
    subject: Subject, recipe: Recipe, *, device: str = "auto", layers: int | None = None, force: bool = False
) -> Measurement:
    """A few steps of a recipe (see `plain_loop_recipe`) on the device, beside the plan of the same.

    Raises:
        PlannerError: options out of range, or it cannot be run here; says why.
    """

    def plan(model: Model, exact_sizes: bool, workspace: int) -> Planned:
        return plain_loop_bytes(model, recipe, exact_sizes=exact_sizes, workspace_bytes=workspace)

    def run(meter: Meter, model: Model, values: Mapping[str, object]) -> Run:
        return train.TrainRun(meter, values, recipe, model)

    inputs = asdict(recipe)
    return _Session(subject, "train", inputs, train.JUDGED, plan, run, device, layers, force).measure()


def card_of(device: Device) -> Gpu:
    """The card of a device, by the name its driver gives it; a nameless one when the table does not have it."""
    try:
        return find_gpu(device.name, memory_bytes=device.total_bytes)
    except UnknownGpu:
        return unnamed_gpu(device.total_bytes)


class _Session:
    def __init__(
        self,
        subject: Subject,
        command: str,
        workload: Mapping[str, object],
        judged: tuple[str, ...],
        plan: Callable[[Model, bool, int], Planned],
        make_run: Callable[[Meter, Model, Mapping[str, object]], Run],
        device: str,
        layers: int | None,
        force: bool,
    ) -> None:
        self.subject, self.command, self.workload, self.judged = subject, command, workload, judged
        self.plan, self.make_run, self.wanted, self.force = plan, make_run, device, force
        self.depths = subject.depths(layers)
        self.used_before = self.used_peak = 0
        self.device: Device | None = None
        self.failure: OutOfMemory | None = None

    def measure(self) -> Measurement:
        depths = self.depths
        shallow: dict[str, int] = {}
        if depths.shallow != depths.deep:
            _, shallow = self._at(depths.shallow)
        planned, deep = self._at(depths.deep) if self.failure is None else ({}, {})
        assert self.device is not None
        at_depth = tuple(figures_of(planned, deep, judged=self.judged))
        figures = at_depth
        if depths.deep != depths.total:
            whole = self._plan(self.subject.model, self.device)
            low = figures_of(planned, shallow, judged=self.judged)
            figures = extrapolated(low, at_depth, whole, depths)
        return Measurement(
            command=self.command,
            model=self.subject.model.id,
            config=self.subject.model.id,
            workload=self.workload,
            depths=depths,
            figures=figures,
            at_depth=at_depth,
            device=self.device,
            used_before_bytes=self.used_before,
            used_peak_bytes=self.used_peak,
            versions=versions() | self.device.details,
            out_of_memory=self.failure,
            notes=self._notes(),
        )

    def _plan(self, model: Model, device: Device) -> Planned:
        on_cpu = device.kind == "cpu"
        return self.plan(
            model, on_cpu, 0 if on_cpu else workspace_bytes(card_of(device), trains=self.command == "train")
        )

    def _at(self, layers: int) -> tuple[Planned, dict[str, int]]:
        model, values = self.subject.at_depth(layers)
        meter = meter_for(self.wanted)
        self.device = meter.device()
        planned = self._plan(model, self.device)
        needed = max((planned.get(name) or 0) for name in _PEAKS)
        require_room(self.device, needed, force=self.force)
        with meter:
            self.used_before = self.used_before or meter.used_bytes()
            measured = self._watched(meter, self.make_run(meter, model, values))
            reserved = meter.reserved_bytes()
            if reserved is not None:
                measured["reserved"] = reserved
            self.used_peak = max(self.used_peak, meter.used_bytes())
        gc.collect()
        return planned, measured

    def _watched(self, meter: Meter, run: Run) -> dict[str, int]:
        try:
            run.run()
        except Exception as error:
            self.failure = out_of_memory(meter, error, run.phase)
        return dict(run.measured)

    def _notes(self) -> tuple[str, ...]:
        depths = self.depths
        if depths.deep == depths.total:
            return ()
        return (
            f"run with {depths.shallow} and {depths.deep} of {depths.total} layers; the figures of all {depths.total}"
            " follow from the difference of the two",
        )


def dry_run(subject: Subject, command: str, planned: Callable[[Model], Planned], layers: int | None) -> dict[str, Any]:
    """What a measurement would do: the depths, and what the plan says at each of them, in bytes."""
    depths: Depths = subject.depths(layers)
    wanted = sorted({depths.shallow, depths.deep, depths.total})
    return {
        "command": command,
        "model": subject.model.id,
        "runs_at_layers": sorted({depths.shallow, depths.deep}),
        "planned": [{"layers": depth, **planned(subject.at_depth(depth)[0])} for depth in wanted],
    }
