"""Ollama as every room asks it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.contract.engine import Axes, Layout, PlannedEach, Prepared
from planner.contract.inputs import echo
from planner.contract.lever import Lever
from planner.contract.parser import Parsed, Takes
from planner.contract.section import Section
from planner.contract.start_log import Compared, MeasuredStart
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.llama_cpp.engine import LLAMA_CPP
from planner.engines.llama_cpp.log import beside, read_log
from planner.engines.llama_cpp.plan import LlamaPlan
from planner.engines.llama_cpp.section import section
from planner.engines.ollama.deployment import Deployment as OllamaDeployment
from planner.engines.ollama.plan import plan_model
from planner.engines.ollama.releases import NEWEST
from planner.hardware.gpus import Gpu
from planner.model.model import Model


class Ollama:
    """The engine; it keeps nothing."""

    name: Final = "ollama"
    title: Final = "Ollama"
    Deployment: Final = OllamaDeployment
    axes: Final = Axes(
        quantization="quantization",
        cache="kv_cache_type",
        length="num_ctx",
        slots="num_parallel",
        caches=("f16", "q8_0"),
    )
    lever_table: Final = ""

    @property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest release that is described."""
        return "0.1.0", NEWEST

    def takes(self, option: str) -> Takes | None:
        """What an option of `ollama run` takes that is no input here."""
        return {"--verbose": "switch", "--keepalive": "value", "--format": "value", "--insecure": "switch"}.get(option)  # type: ignore[return-value]

    def options(self) -> Iterable[str]:
        """None beside the inputs."""
        return ()

    def deployment(self, parsed: Parsed, **more: object) -> OllamaDeployment:
        """The deployment of a command line."""
        return parsed.record(OllamaDeployment, **more)

    def plan(
        self,
        model: Model,
        deployment: OllamaDeployment,
        workload: Workload = ONE_REQUEST,
        *,
        notes: tuple[str, ...] = (),
    ) -> LlamaPlan:
        """The plan of one loaded model."""
        return plan_model(model, deployment, workload, notes=notes)

    def usual_formats(self, gpu: Gpu | None) -> Sequence[tuple[str, float]]:
        """The mixes that people compare, on any card, with the bits of their base type."""
        return LLAMA_CPP.usual_formats(gpu)

    def prepare(self, model: Model, deployment: OllamaDeployment, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share; the model remembers their graphs."""
        return PlannedEach(self, model, deployment, workload, self.axes.length)

    def command(self, plan: LlamaPlan) -> Sequence[str]:
        """Environment first, then `ollama run`."""
        asked: OllamaDeployment = plan.deployment
        slots = plan.run.geometry.slots if plan.run else 1
        length = plan.run.geometry.n_ctx // slots if plan.run else asked.num_ctx
        words = [f"OLLAMA_CONTEXT_LENGTH={length}", f"OLLAMA_NUM_PARALLEL={slots}"]
        if asked.kv_cache_type != "f16":
            words.append(f"OLLAMA_KV_CACHE_TYPE={asked.kv_cache_type}")
        if asked.flash_attention is not None:
            words.append(f"OLLAMA_FLASH_ATTENTION={int(asked.flash_attention)}")
        if asked.gpu_overhead_bytes:
            words.append(f"OLLAMA_GPU_OVERHEAD={asked.gpu_overhead_bytes}")
        if asked.sched_spread:
            words.append("OLLAMA_SCHED_SPREAD=1")
        name = plan.model.id if asked.quantization is None else f"hf.co/{plan.model.id}-GGUF:{asked.quantization}"
        return [*words, "ollama", "run", name]

    def section(self, plan: LlamaPlan) -> Section:
        """llama.cpp's account under Ollama's own inputs."""
        told = section(plan)
        return Section(
            headline=told.headline,
            breakdowns=told.breakdowns,
            lines=told.lines,
            arithmetic=told.arithmetic,
            inputs={**told.inputs, **echo(plan.deployment)},
            extra=told.extra,
        )

    def levers(self, plan: LlamaPlan) -> Iterable[Lever]:
        """None: Ollama places layers by itself; a shorter num_ctx and a quantised cache are its own knobs."""
        return ()

    def layouts(self, model: Model, deployment: OllamaDeployment) -> Iterable[Layout]:
        """One card: Ollama takes what the machine has."""
        return (Layout(cards=1, stages=1, changes={}),)

    def read_log(self, lines: Iterable[str]) -> MeasuredStart:
        """What a start-up log says: the runner's figures, under Ollama's own inputs."""
        found = read_log(lines)
        return replace(found, words=tuple(_words_of_runner(found.stated)))

    def beside(
        self, plan: LlamaPlan, measured: Mapping[str, float], unknown: Sequence[str] = ()
    ) -> tuple[list[Compared], list[tuple[str, str]]]:
        """What the plan says of printed figures, and (mode, reason) for what cannot be compared."""
        return beside(plan, measured, unknown)


def _words_of_runner(stated: Mapping[str, object]) -> Iterator[str]:
    """Ollama's own inputs of what the runner that it started says; the runner's context is that of all slots."""
    slots = int(str(stated.get("parallel", 1)))
    if "ctx_size" in stated:
        yield from ("--num-ctx", str(int(str(stated["ctx_size"])) // slots))
    for name, option in (
        ("parallel", "--num-parallel"),
        ("n_gpu_layers", "--num-gpu"),
        ("batch_size", "--num-batch"),
        ("quantization", "--quantization"),
        ("cache_type_k", "--kv-cache-type"),
    ):
        if name in stated:
            yield from (option, str(stated[name]))


OLLAMA: Final = Ollama()
