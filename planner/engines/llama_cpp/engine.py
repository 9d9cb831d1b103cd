"""llama.cpp as every room asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planner.contract.engine import Axes, Layout, PlannedEach, Prepared
from planner.contract.lever import Lever
from planner.contract.parser import Parsed, Takes
from planner.contract.section import Section
from planner.contract.start_log import Compared, MeasuredStart
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.llama_cpp.command import command_words
from planner.engines.llama_cpp.deployment import Deployment as LlamaDeployment
from planner.engines.llama_cpp.levers import serving_levers
from planner.engines.llama_cpp.plan import LlamaPlan, plan_serving
from planner.engines.llama_cpp.section import section
from planner.engines.llama_cpp.tables.options import other_options
from planner.engines.llama_cpp.tables.releases import NEWEST
from planner.hardware.gpus import Gpu
from planner.memory.usual_formats import UsualFormat
from planner.model.model import Model

# ggml block sizes: bits a weight of the type that most of the mix has (ggml-common.h)
_USUAL_MIXES: Final = tuple(
    UsualFormat(name, bits)
    for name, bits in (("Q8_0", 8.5), ("Q6_K", 6.5625), ("Q5_K_M", 5.5), ("Q4_K_M", 4.5), ("Q3_K_M", 3.4375))
)


class LlamaCpp:
    """The engine; it keeps nothing."""

    name: Final = "llama.cpp"
    title: Final = "llama.cpp"
    Deployment: Final = LlamaDeployment
    axes: Final = Axes(
        quantization="quantization",
        cache="cache_type_k",
        length="ctx_size",
        slots="parallel",
        length_of_all=True,
        caches=("f16", "q8_0"),
        on_cards=(("n_gpu_layers", "999"),),
    )
    lever_table: Final = "planner.engines.llama_cpp.tables:levers.csv"

    @property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest release that is described."""
        return "2024-05", NEWEST

    def takes(self, option: str) -> Takes | None:
        """What an option of llama-server takes that is no input here."""
        return other_options().get(option)

    def options(self) -> Iterable[str]:
        """Every option of llama-server that is no input here."""
        return other_options()

    def deployment(self, parsed: Parsed, **more: object) -> LlamaDeployment:
        """The deployment of a command line."""
        return parsed.record(LlamaDeployment, passed=parsed.passed, **more)

    def plan(
        self,
        model: Model,
        deployment: LlamaDeployment,
        workload: Workload = ONE_REQUEST,
        *,
        notes: tuple[str, ...] = (),
    ) -> LlamaPlan:
        """The plan of one deployment."""
        return plan_serving(model, deployment, workload, notes=notes)

    def usual_formats(self, gpu: Gpu | None) -> Sequence[UsualFormat]:
        """The mixes that most files come in, on every card alike; bits are those of the mix's main type."""
        return _USUAL_MIXES

    def prepare(self, model: Model, deployment: LlamaDeployment, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share; the model remembers their graphs."""
        return PlannedEach(self, model, deployment, workload, self.axes.length)

    def command(self, plan: LlamaPlan) -> Sequence[str]:
        """The llama-server line."""
        return command_words(plan)

    def section(self, plan: LlamaPlan) -> Section:
        """The engine's load lines, and what RAM costs in speed."""
        return section(plan)

    def levers(self, plan: LlamaPlan) -> Iterable[Lever]:
        """What could be changed, the cheapest first."""
        return serving_levers(plan)

    def layouts(self, model: Model, deployment: LlamaDeployment) -> Iterable[Layout]:
        """One card, or several with the layers shared out."""
        del model
        name = deployment.cards[0].id if deployment.cards else ""
        for count in (1, 2, 4, 8) if name else (1,):
            changes = {"gpus": None if count == 1 else f"{count}x{name}"}
            yield Layout(cards=count, stages=count, changes=changes)

    def read_log(self, lines: Iterable[str]) -> MeasuredStart:
        """What a start-up log says."""
        from planner.engines.llama_cpp.log import read_log  # a plan need not pay for it

        return read_log(lines)

    def beside(
        self, plan: LlamaPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
    ) -> tuple[list[Compared], list[tuple[str, str]]]:
        """What the plan says of printed figures, and (mode, reason) for what cannot be compared."""
        from planner.engines.llama_cpp.log import beside

        return beside(plan, measured, unknown)


LLAMA_CPP: Final = LlamaCpp()
