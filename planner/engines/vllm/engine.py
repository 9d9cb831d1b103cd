"""vLLM as every room asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planner.contract.engine import Axes, Layout, Prepared
from planner.contract.lever import Lever
from planner.contract.parser import Parsed, Takes
from planner.contract.section import Section
from planner.contract.start_log import Compared, MeasuredStart
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.vllm.command import command_words
from planner.engines.vllm.deployment import Deployment as VllmDeployment
from planner.engines.vllm.instances import plan_serving
from planner.engines.vllm.options import check_options
from planner.engines.vllm.outcome.section import section
from planner.engines.vllm.plan import VllmPlan
from planner.engines.vllm.tables.flags import option_takes, vllm_flags
from planner.engines.vllm.tables.profile import version_range
from planner.hardware.gpus import Gpu
from planner.memory.quantisation import as_asked
from planner.memory.usual_formats import UsualFormat, usual_formats
from planner.model.model import Model


class Vllm:
    """The engine; it keeps nothing."""

    name: Final = "vllm"
    title: Final = "vLLM"
    Deployment: Final = VllmDeployment
    axes: Final = Axes(
        quantization="quantization", cache="kv_cache_dtype", ways="tensor_parallel_size", length="max_model_len"
    )
    lever_table: Final = "planner.engines.vllm.tables:levers.csv"

    @property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest release that the tables describe."""
        return version_range()

    def takes(self, option: str) -> Takes | None:
        """What an option of vLLM takes that is no input here."""
        return option_takes(option)

    def options(self) -> Iterable[str]:
        """Every option of vLLM, for near-miss hints."""
        return vllm_flags()

    def deployment(self, parsed: Parsed, **more: object) -> VllmDeployment:
        """The deployment of a command line.

        Raises:
            UsageError: an option that this release does not have, a value that is none, no card.
        """
        deployment = parsed.record(VllmDeployment, passed=parsed.passed, **more)
        check_options(deployment, tuple(parsed.typed.values()))
        return deployment

    def plan(
        self, model: Model, deployment: VllmDeployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
    ) -> VllmPlan:
        """The plan of one deployment."""
        return plan_serving(as_asked(model, deployment.quantization), deployment, workload, notes=notes)

    def usual_formats(self, gpu: Gpu | None) -> Sequence[UsualFormat]:
        """Of the formats that people compare those that the card's kernels take."""
        return usual_formats(gpu)

    def prepare(self, model: Model, deployment: VllmDeployment, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share."""
        from planner.engines.vllm.prepared import PreparedVllm  # a single plan need not pay for it

        return PreparedVllm(as_asked(model, deployment.quantization), deployment, workload)

    def command(self, plan: VllmPlan) -> Sequence[str]:
        """The `vllm serve` line."""
        return command_words(plan)

    def section(self, plan: VllmPlan) -> Section:
        """The fraction, what is taken off it, and the pool of blocks."""
        return section(plan)

    def levers(self, plan: VllmPlan) -> Iterable[Lever]:
        """What could be changed, the cheapest first."""
        from planner.engines.vllm.levers import serving_levers  # a plan that fits need not pay for it

        return serving_levers(plan)

    def layouts(self, model: Model, deployment: VllmDeployment) -> Iterable[Layout]:
        """Tensor parallel within a node of eight, pipeline stages beyond."""
        from planner.engines.vllm.levers import layouts

        return layouts(model, deployment)

    def read_log(self, lines: Iterable[str]) -> MeasuredStart:
        """What a start-up log says."""
        from planner.engines.vllm.log.start_log import read_log  # a plan need not pay for it

        return read_log(lines)

    def beside(
        self, plan: VllmPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
    ) -> tuple[list[Compared], list[tuple[str, str]]]:
        """What the plan says of printed figures, and (mode, reason) for what cannot be compared."""
        from planner.engines.vllm.log.beside import beside

        return beside(plan, measured, unknown)


VLLM: Final = Vllm()
