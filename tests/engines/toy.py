"""Two engines that stand in no table: one with rules of its own, and vLLM with an input more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from planner.contract.card import Card
from planner.contract.component import exact, total
from planner.contract.engine import Axes, Layout, PlannedEach
from planner.contract.inputs import check, echo, option, words_of
from planner.contract.lever import Kind, Lever
from planner.contract.parser import Parsed
from planner.contract.plan import Cache, Device, Load, ServingPlan, WorkloadPoint
from planner.contract.section import Section, default_section
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.vllm.deployment import Deployment as VllmDeployment
from planner.engines.vllm.engine import Vllm
from planner.model.model import Model

GIB = 1 << 30
BYTES_PER_TOKEN = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bricks(Card):
    """Memory comes in bricks of a GiB; a token takes a MiB."""

    engine_version: Annotated[str, option("Release.", ours=True, choices=("1", "2"))] = "1"
    bricks: Annotated[int, Ge(1), option("Bricks of a GiB.", "--bricks", "-b", common=True)] = 4
    dry: Annotated[bool, option("Without mortar, which takes a GiB.")] = False
    context: Annotated[int, Ge(1), option("Longest request.", unit="tokens")] = 1024


class Brickwork:
    """An engine of one rule: bricks, mortar, and a MiB a token."""

    name = "brickwork"
    title = "Brickwork"
    Deployment = Bricks
    axes = Axes(length="context")
    lever_table = ""
    versions = ("1", "2")

    def usual_formats(self, gpu: Any) -> Sequence[Any]:
        return ()

    def takes(self, option: str) -> None:
        return None

    def options(self) -> Iterable[str]:
        return ()

    def deployment(self, parsed: Parsed, **more: object) -> Bricks:
        return parsed.record(Bricks, **more)

    def plan(
        self, model: Model, deployment: Bricks, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
    ) -> ServingPlan:
        check(deployment)
        parts = [exact("bricks", deployment.bricks * GIB, f"{deployment.bricks} x 1 GiB", "the rule")]
        if not deployment.dry:
            parts.append(exact("mortar", GIB, "1 GiB", "the rule"))
        cache = workload.concurrency * deployment.context * BYTES_PER_TOKEN
        left = deployment.total_bytes - total(parts, "best") - cache
        room = max(0, left + cache) // BYTES_PER_TOKEN
        return ServingPlan(
            model=model,
            deployment=deployment,
            workload=workload,
            engine=self.name,
            engine_version=deployment.engine_version,
            resolved=deployment,
            devices=(
                Device(
                    name=deployment.gpu.name if deployment.gpu else "card",
                    kind="gpu",
                    total_bytes=deployment.total_bytes,
                    components=tuple(parts),
                    cache_bytes=cache,
                    free_bytes=left,
                ),
            ),
            cache=Cache(
                bytes_per_token=BYTES_PER_TOKEN,
                bytes_per_sequence=deployment.context * BYTES_PER_TOKEN,
                reserved_bytes=cache,
                tokens=cache // BYTES_PER_TOKEN,
                max_concurrency=room / deployment.context,
                request_bytes=deployment.context * BYTES_PER_TOKEN,
                longest=min(room // workload.concurrency, model.longest_request),
            ),
            max_model_len=deployment.context,
            positions=model.longest_request,
            points=(
                WorkloadPoint(at="all", tokens_per_request=deployment.context, concurrency=room // deployment.context),
            ),
            load=Load(gpu_peak_bytes=deployment.bricks * GIB, host_bytes=0),
            verdict="fits" if left >= 0 else "does_not_fit",
            shortfall_bytes=max(0, -left),
            startup_error=None,
            unknown=(),
            notes=notes,
        )

    def prepare(self, model: Model, deployment: Bricks, workload: Workload = ONE_REQUEST) -> PlannedEach:
        return PlannedEach(self, model, deployment, workload, self.axes.length)

    def command(self, plan: Any) -> list[str]:
        return ["brickwork", "build", plan.model.id, *words_of(plan.deployment)]

    def section(self, plan: Any) -> Section:
        return default_section(plan, inputs=echo(plan.deployment) | {"engine": self.name})

    def levers(self, plan: Any) -> Iterable[Lever]:
        kind = Kind(
            name="dry", input="dry", rank=1, step=0, group="mortar", phase="loading", cost="quality",
            detail="no mortar", source="the rule",
        )  # fmt: skip
        if not plan.deployment.dry:
            yield Lever(
                kind=kind, before="mortar", values=("none",), changes=lambda _: {"dry": True}, flag=lambda _: "--dry"
            )

    def layouts(self, model: Model, deployment: Any) -> Iterable[Layout]:
        return (Layout(cards=1, stages=1, changes={}),)


@dataclass(frozen=True, kw_only=True)
class OneMore(VllmDeployment):
    """vLLM's inputs and another."""

    brick_count: Annotated[
        int | None, Ge(1), option("Bricks beside the card.", "--brick-count", panel="Masonry", memory="host")
    ] = None


class VllmAndOne(Vllm):
    """vLLM with that input."""

    name = "vllm-and-one"  # type: ignore[misc]
    Deployment = OneMore  # type: ignore[assignment, misc]

    def deployment(self, parsed: Parsed, **more: object) -> VllmDeployment:
        return parsed.record(OneMore, passed=parsed.passed, **more)


BRICKWORK = Brickwork()
VLLM_AND_ONE = VllmAndOne()
