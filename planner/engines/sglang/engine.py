"""SGLang as every room asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.contract.engine import AtLength, Axes, Layout, Prepared
from planner.contract.lever import Lever
from planner.contract.parser import Parsed, Takes
from planner.contract.section import Section
from planner.contract.start_log import Compared, MeasuredStart
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.sglang.command import command_words
from planner.engines.sglang.deployment import Deployment as SglangDeployment
from planner.engines.sglang.plan import SglangPlan, plan_serving
from planner.engines.sglang.section import section
from planner.engines.sglang.tables.flags import check_release, option_takes, other_flags
from planner.engines.sglang.tables.quantization import model_asked_for
from planner.engines.sglang.tables.releases import NEWEST, OLDEST, parse_release
from planner.hardware.gpus import Gpu
from planner.memory.usual_formats import UsualFormat, usual_formats
from planner.model.model import Model


@dataclass(frozen=True, slots=True)
class _Prepared:
    model: Model
    deployment: SglangDeployment
    workload: Workload

    def at(self, max_model_len: int) -> AtLength:
        """The figures of the plan at this length; the model remembers what lengths share."""
        deployment = replace(self.deployment, context_length=max_model_len)
        plan = plan_serving(self.model, deployment, self.workload)
        error = plan.startup_error
        return AtLength(
            max_model_len=max_model_len,
            weights_as=plan.scheme.label,
            weights_bytes=plan.budget.stage.static[0].best,
            bytes_per_token=plan.cache.bytes_per_token,
            cache_bytes=plan.cache.reserved_bytes,
            tokens=plan.pools.tokens,
            concurrency=plan.points[0].concurrency,
            verdict=plan.verdict,
            reason=error.message if error is not None else "",
        )


class Sglang:
    """The engine; it keeps nothing."""

    name: Final = "sglang"
    title: Final = "SGLang"
    Deployment: Final = SglangDeployment
    axes: Final = Axes(
        quantization="quantization",
        cache="kv_cache_dtype",
        ways="tp_size",
        length="context_length",
        caches=("auto", "fp8_e4m3"),
    )
    lever_table: Final = "planner.engines.sglang.tables:levers.csv"

    @property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest release that the tables describe."""
        return OLDEST, NEWEST

    def takes(self, option: str) -> Takes | None:
        """What an option of SGLang takes that is no input here."""
        return option_takes(option)

    def options(self) -> Iterable[str]:
        """Every option of SGLang that is no input, for near-miss hints."""
        return other_flags()

    def deployment(self, parsed: Parsed, **more: object) -> SglangDeployment:
        """The deployment of a command line.

        Raises:
            UsageError: an option that this release does not have, a value that is none, no card.
        """
        found = parsed.record(SglangDeployment, passed=parsed.passed, **more)
        check_release(found.passed, parse_release(found.engine_version), found.engine_version)
        return found

    def plan(
        self,
        model: Model,
        deployment: SglangDeployment,
        workload: Workload = ONE_REQUEST,
        *,
        notes: tuple[str, ...] = (),
    ) -> SglangPlan:
        """The plan of one deployment."""
        return plan_serving(_model(model, deployment), deployment, workload, notes=notes)

    def usual_formats(self, gpu: Gpu | None) -> Sequence[UsualFormat]:
        """Of the formats that people compare those that the card's kernels take."""
        return usual_formats(gpu)

    def prepare(self, model: Model, deployment: SglangDeployment, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share."""
        return _Prepared(_model(model, deployment), deployment, workload)

    def command(self, plan: SglangPlan) -> Sequence[str]:
        """The `python -m sglang.launch_server` line."""
        return command_words(plan)

    def section(self, plan: SglangPlan) -> Section:
        """The static share, the pools, and the fractions that work."""
        return section(plan)

    def levers(self, plan: SglangPlan) -> Iterable[Lever]:
        """What could be changed, the cheapest first."""
        from planner.engines.sglang.levers import serving_levers  # a plan that fits need not pay for it

        return serving_levers(plan)

    def layouts(self, model: Model, deployment: SglangDeployment) -> Iterable[Layout]:
        """Tensor parallel within a node of eight, pipeline stages beyond."""
        from planner.engines.sglang.levers import layouts

        return layouts(model, deployment)

    def read_log(self, lines: Iterable[str]) -> MeasuredStart:
        """What a start-up log says."""
        from planner.engines.sglang.log import read_log  # a plan need not pay for it

        return read_log(lines)

    def beside(
        self, plan: SglangPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
    ) -> tuple[list[Compared], list[tuple[str, str]]]:
        """What the plan says of printed figures, and (mode, reason) for what cannot be compared."""
        from planner.engines.sglang.beside_log import beside

        return beside(plan, measured, unknown)


def _model(model: Model, deployment: SglangDeployment) -> Model:
    return model_asked_for(model, deployment.quantization, deployment.engine_version)


SGLANG: Final = Sglang()
