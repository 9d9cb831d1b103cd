"""TensorRT-LLM as every room asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.contract.engine import AtLength, Axes, Layout, Prepared
from planner.contract.lever import Lever
from planner.contract.parser import Parsed, Takes, dashed, parse
from planner.contract.reading import shown
from planner.contract.section import Section
from planner.contract.start_log import Compared, MeasuredStart
from planner.contract.words.config_file import words_of_file
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.tensorrt_llm.command import command_words
from planner.engines.tensorrt_llm.deployment import Deployment as TensorrtLlmDeployment
from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan, plan_serving
from planner.engines.tensorrt_llm.section import section
from planner.engines.tensorrt_llm.tables.releases import NEWEST, OLDEST, flags
from planner.hardware.gpus import Gpu
from planner.memory.quantisation import as_asked
from planner.memory.usual_formats import UsualFormat, usual_formats
from planner.model.model import Model


@dataclass(frozen=True, slots=True)
class _Prepared:
    model: Model
    deployment: TensorrtLlmDeployment
    workload: Workload

    def at(self, max_model_len: int) -> AtLength:
        """The figures of the plan at this length."""
        plan = plan_serving(self.model, replace(self.deployment, max_seq_len=max_model_len), self.workload)
        error = plan.startup_error
        return AtLength(
            max_model_len=max_model_len,
            weights_as=plan.scheme.label,
            weights_bytes=plan.load.gpu_peak_bytes,
            bytes_per_token=plan.cache.bytes_per_token,
            cache_bytes=plan.cache.reserved_bytes,
            tokens=plan.pool.tokens,
            concurrency=plan.points[0].concurrency,
            verdict=plan.verdict,
            reason=error.message if error is not None else "",
        )


class TensorrtLlm:
    """The engine; it keeps nothing."""

    name: Final = "tensorrt-llm"
    title: Final = "TensorRT-LLM"
    Deployment: Final = TensorrtLlmDeployment
    axes: Final = Axes(quantization="quantization", cache="kv_cache_dtype", ways="tp_size", length="max_seq_len")
    lever_table: Final = "planner.engines.tensorrt_llm.tables:levers.csv"

    @property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest release that the tables describe."""
        return OLDEST, NEWEST

    def takes(self, option: str) -> Takes | None:
        """What an option of trtllm-serve takes that is no input here."""
        row = flags().get(dashed(option))
        if row is None:
            return None
        return "switch" if row["takes"] == "switch" else "value"

    def options(self) -> Iterable[str]:
        """Every option of trtllm-serve that is no input, for near-miss hints."""
        return flags()

    def deployment(self, parsed: Parsed, **more: object) -> TensorrtLlmDeployment:
        """The deployment of a command line; the YAML of --extra_llm_api_options is read and beats it.

        Raises:
            UsageError: a value that is none, no card, a file that cannot be read or names what is unknown.
        """
        found = parsed.record(TensorrtLlmDeployment, passed=parsed.passed, **more)
        if found.extra_llm_api_options is None:
            return found
        words = words_of_file(found.extra_llm_api_options)
        inner = parse([TensorrtLlmDeployment], words, other=self.takes, most_positional=0)
        overwritten = tuple(
            f"{name} {shown(value)} instead of {shown(parsed.given[name])}"
            for name, value in inner.given.items()
            if name in parsed.given and parsed.given[name] != value
        )
        return replace(found, **dict(inner.given), passed=(*found.passed, *inner.passed), overwritten=overwritten)

    def plan(
        self,
        model: Model,
        deployment: TensorrtLlmDeployment,
        workload: Workload = ONE_REQUEST,
        *,
        notes: tuple[str, ...] = (),
    ) -> TensorrtLlmPlan:
        """The plan of one deployment."""
        return plan_serving(as_asked(model, deployment.quantization), deployment, workload, notes=notes)

    def usual_formats(self, gpu: Gpu | None) -> Sequence[UsualFormat]:
        """Of the formats that people compare those that the card's kernels take."""
        return usual_formats(gpu)

    def prepare(self, model: Model, deployment: TensorrtLlmDeployment, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share."""
        return _Prepared(as_asked(model, deployment.quantization), deployment, workload)

    def command(self, plan: TensorrtLlmPlan) -> Sequence[str]:
        """The trtllm-serve line."""
        return command_words(plan)

    def section(self, plan: TensorrtLlmPlan) -> Section:
        """What is left, the fraction of it, and the blocks."""
        return section(plan)

    def levers(self, plan: TensorrtLlmPlan) -> Iterable[Lever]:
        """What could be changed, the cheapest first."""
        from planner.engines.tensorrt_llm.levers import serving_levers  # a plan that fits need not pay for it

        return serving_levers(plan)

    def layouts(self, model: Model, deployment: TensorrtLlmDeployment) -> Iterable[Layout]:
        """Tensor parallel within a node of eight, pipeline stages beyond."""
        from planner.engines.tensorrt_llm.levers import layouts

        return layouts(model, deployment)

    def read_log(self, lines: Iterable[str]) -> MeasuredStart:
        """What a start-up log says."""
        from planner.engines.tensorrt_llm.log import read_log  # a plan need not pay for it

        return read_log(lines)

    def beside(
        self, plan: TensorrtLlmPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
    ) -> tuple[list[Compared], list[tuple[str, str]]]:
        """What the plan says of printed figures, and (mode, reason) for what cannot be compared."""
        from planner.engines.tensorrt_llm.beside_log import beside

        return beside(plan, measured, unknown)


TENSORRT_LLM: Final = TensorrtLlm()
