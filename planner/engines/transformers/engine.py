"""Plain transformers as every room asks it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from planner.contract.engine import Axes, Layout, PlannedEach, Prepared
from planner.contract.inputs import echo, words_of
from planner.contract.lever import Lever
from planner.contract.parser import Parsed, Takes
from planner.contract.section import Section, default_section
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.transformers.deployment import RELEASE
from planner.engines.transformers.deployment import Deployment as TransformersDeployment
from planner.engines.transformers.plan import TransformersPlan, plan_run
from planner.hardware.gpus import Gpu
from planner.memory.quantisation import as_asked
from planner.memory.usual_formats import UsualFormat
from planner.model.model import Model
from planner.units import format_size


class Transformers:
    """The engine; it keeps nothing."""

    name: Final = "transformers"
    title: Final = "transformers"
    Deployment: Final = TransformersDeployment
    axes: Final = Axes(quantization="quantization", length="max_model_len")
    lever_table: Final = ""

    @property
    def versions(self) -> tuple[str, str]:
        """The release that is described."""
        return RELEASE, RELEASE

    def takes(self, option: str) -> Takes | None:
        """Every option that a run has is an input here."""
        return None

    def options(self) -> Iterable[str]:
        """None beside the inputs."""
        return ()

    def deployment(self, parsed: Parsed, **more: object) -> TransformersDeployment:
        """The deployment of a command line."""
        return parsed.record(TransformersDeployment, **more)

    def plan(
        self,
        model: Model,
        deployment: TransformersDeployment,
        workload: Workload = ONE_REQUEST,
        *,
        notes: tuple[str, ...] = (),
    ) -> TransformersPlan:
        """The plan of one run."""
        return plan_run(as_asked(model, deployment.quantization), deployment, workload, notes=notes)

    def usual_formats(self, gpu: Gpu | None) -> Sequence[UsualFormat]:
        """What bitsandbytes makes of a plain checkpoint while it loads."""
        return (UsualFormat("bitsandbytes", 4.0),)

    def prepare(self, model: Model, deployment: TransformersDeployment, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share."""
        model = as_asked(model, deployment.quantization)
        return PlannedEach(self, model, deployment, workload, self.axes.length)

    def command(self, plan: TransformersPlan) -> Sequence[str]:
        """This program's own line: a script has none."""
        run = plan.run
        lengths = ["--input-len", str(run.input_len)]
        if run.output_len:
            lengths += ["--output-len", str(run.output_len)]
        words = words_of(
            plan.deployment,
            always={"dtype": run.dtype, "batch_size": run.batch_size, "logits_to_keep": run.logits},
            leave=("max_model_len",),
        )
        return ["vram-planner", "serve", plan.model.id, "--engine", self.name, *words, *lengths]

    def section(self, plan: TransformersPlan) -> Section:
        """What torch and the driver would say."""
        run, deployment = plan.run, plan.deployment
        decided: dict[str, object] = {
            "engine": self.name,
            "engine_version": RELEASE,
            "gpu_memory_bytes": plan.devices[0].total_bytes,
            "dtype": run.dtype,
            "batch_size": run.batch_size,
            "input_len": run.input_len,
            "output_len": run.output_len,
            "logits_to_keep": run.logits,
        }
        what = f" and {run.output_len:,} generated" if run.output_len else ", one forward"
        return default_section(
            plan,
            headline=f"{run.batch_size} x {run.input_len:,} tokens{what}: {format_size(plan.device_bytes)} on the card"
            + (f", short by {format_size(plan.shortfall_bytes)}" if plan.shortfall_bytes else ""),
            lines=(
                f"peak allocated {format_size(plan.allocated_bytes)}, on the card {format_size(plan.device_bytes)} of"
                f" {format_size(plan.devices[0].total_bytes)}",
                f"fits at this batch: {plan.longest_input:,} tokens of input; at this length: {plan.largest_batch:,}"
                " sequences",
            ),
            inputs=echo(deployment) | decided,
            extra={
                "peak": {"allocated_bytes": plan.allocated_bytes, "device_bytes": plan.device_bytes},
                "largest_that_fits": {"input_len": plan.longest_input, "batch_size": plan.largest_batch},
            },
        )

    def levers(self, plan: TransformersPlan) -> Iterable[Lever]:
        """None: what a run could be is `largest_that_fits`."""
        return ()

    def layouts(self, model: Model, deployment: TransformersDeployment) -> Iterable[Layout]:
        """One card: no run is spread here."""
        return (Layout(cards=1, stages=1, changes={}),)


TRANSFORMERS: Final = Transformers()
