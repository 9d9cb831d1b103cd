"""A workload beside an error: its plan, and what the plan expects at each moment of a program's life. Sizes in bytes.

No term of memory is computed here: bytes come from `plan_serving` and `plan_training`, and are put into the sums in
which a message prints them (what torch has allocated, what the driver has given away).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from planner.contract.component import Component, Side
from planner.diagnosis.result import Message
from planner.engines.vllm.plan import VllmPlan
from planner.hardware.gpus import unnamed_gpu
from planner.levers.advice import Advice, advise
from planner.levers.question import ServingQuestion
from planner.levers.training import TrainingQuestion, advise_training
from planner.model.model import Model
from planner.training.plan import TrainingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A planned size: the low end, the best estimate and the high end."""

    low: int
    best: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment of the program: what it does, and what torch has allocated at its peak."""

    name: str
    allocated: Band


def exactly(size_bytes: int) -> Band:
    """A band without width."""
    return Band(low=size_bytes, best=size_bytes, high=size_bytes)


def band(*sizes: int) -> Band:
    """The best estimate first, then the ends in any order."""
    return Band(low=min(sizes), best=sizes[0], high=max(sizes))


# Parts of vLLM's budget that torch's allocator does not count as allocated: driver, libraries, graphs, other programs.
_BEYOND_TORCH: Final = ("non_torch", "context", "cuda_graphs", "nccl_outside", "other_processes", "post_profile")
_LOADING, _PROFILE, _CACHE, _RUNNING = "loading the weights", "profile run", "laying out the KV cache", "serving"
_SERVING_POINTS: Final = {"load": _LOADING, "profile": _PROFILE, "kv_cache": _CACHE}
# Phase of a traceback to the phases of the training plan, of which the larger one counts.
_TRAINING_POINTS: Final = {
    "load": ("loading",),
    "attention": ("forward",),
    "loss": ("loss forward",),
    "optimizer": ("optimizer step",),
    "backward": ("loss backward", "backward of the layers"),
}


# no slots: the advice is kept once it has been asked for
@dataclass(frozen=True, kw_only=True)
class ServingWorkload:
    """A server that was to run: the question and its plan.

    Args:
        taken: what the text said and the user did not, in words.
    """

    question: ServingQuestion
    taken: tuple[str, ...] = ()
    kind: str = "serve"

    @cached_property
    def plan(self) -> VllmPlan:
        """The plan as asked."""
        plan = self.question.ask({})
        assert isinstance(plan, VllmPlan)
        return plan

    @cached_property
    def advice(self) -> Advice:
        """The plan's levers."""
        return advise(self.question, self.plan)

    @property
    def model(self) -> Model:
        """The model that is served."""
        return self.plan.model

    @property
    def card_bytes(self) -> int:
        """What the plan takes the card's driver to report."""
        return self.plan.resolved.gpu_memory_bytes

    @property
    def needed_bytes(self) -> int:
        """What a card must have."""
        return self.question.needed_bytes(self.plan)

    @property
    def host_bytes(self) -> int:
        """Host memory of all ranks."""
        return self.plan.load.host_bytes

    def component(self, name: str) -> Component | None:
        """A part of the fullest rank's budget."""
        return self.plan.budget.component(name)

    def device(self) -> Band:
        """What the driver says this engine holds when it serves."""
        parts = [part for part in self.plan.budget.outside if part.name != "other_processes"]
        held = {side: sum(part.at(side) for part in parts) for side in ("low", "best", "high")}
        free = self.plan.outside.free_bytes + self.stated_other_bytes
        best = self.card_bytes - free
        return Band(low=best - held["best"] + held["low"], best=best, high=best - held["best"] + held["high"])

    @property
    def stated_other_bytes(self) -> int:
        """What other processes were said to hold."""
        return self.plan.resolved.asked.already_used_bytes

    def point(self, message: Message) -> Point:
        """The moment that a traceback names; serving, the fullest, when it names none."""
        name = _SERVING_POINTS.get(message.context.get("phase", ""), _RUNNING)
        plan = self.plan
        weights = self._torch(("weights", "lora_adapters"))
        if name == _LOADING:
            return Point(name=name, allocated=band(weights["best"], plan.load.gpu_peak_bytes))
        if name == _PROFILE:
            held = self._torch(None)
            return Point(name=name, allocated=band(held["best"], held["low"], held["high"]))
        # more in a part is less in the cache, which takes what the budget leaves
        held = weights if name == _CACHE else self._torch(None)
        sizes = (
            held["best"] + plan.kv_cache_bytes,
            held["high"] + plan.kv_cache_low_bytes,
            held["low"] + plan.kv_cache_high_bytes,
        )
        return Point(name=name, allocated=band(*sizes))

    def _torch(self, names: tuple[str, ...] | None) -> dict[Side, int]:
        """What torch's allocator has of these parts of the budget (None: of all parts)."""
        budget = self.plan.budget
        parts = [part for part in budget.inside + budget.outside if part.name not in _BEYOND_TORCH]
        parts = [part for part in parts if names is None or part.name in names]
        sides: tuple[Side, ...] = ("low", "best", "high")
        return {side: sum(part.at(side) for part in parts) for side in sides}

    def of(self, message: Message) -> ServingWorkload:
        """The workload with the length and the fraction that the text names, where the user named none."""
        asked, taken = self.question.deployment, []
        changes: dict[str, object] = {}
        length = message.bytes_of("max_model_len")
        if asked.max_model_len is None and length is not None and length > 0:
            changes["max_model_len"] = length
            taken.append(f"max_model_len {length:,} is taken from the text")
        said = message.context.get("gpu_memory_utilization")
        fraction = message.number("fraction") or (float(said) if said else None)
        if asked.gpu_memory_utilization is None and fraction is not None and 0 < fraction <= 1:
            changes["gpu_memory_utilization"] = fraction
            taken.append(f"gpu_memory_utilization {fraction:g} is taken from the text")
        if not changes or self.question.try_ask(changes) is None:
            return self
        deployment = replace(asked, **changes)
        return replace(self, question=replace(self.question, deployment=deployment), taken=(*self.taken, *taken))


# no slots, as above
@dataclass(frozen=True, kw_only=True)
class TrainingWorkload:
    """A fine-tune that was to run: the question and its plan."""

    question: TrainingQuestion
    taken: tuple[str, ...] = ()
    kind: str = "train"

    @cached_property
    def plan(self) -> TrainingPlan:
        """The plan as asked."""
        return self.question.ask({})

    @cached_property
    def advice(self) -> Advice:
        """The plan's levers."""
        return advise_training(self.question, self.plan)

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.plan.model

    @property
    def card_bytes(self) -> int:
        """What the plan takes the card's driver to report."""
        return self.plan.gpu_memory_bytes

    @property
    def needed_bytes(self) -> int:
        """What a card must have."""
        return self.plan.needed_best

    @property
    def host_bytes(self) -> int:
        """Host memory of one rank."""
        return self.plan.host_bytes

    @property
    def stated_other_bytes(self) -> int:
        """What other processes were said to hold: a recipe says nothing of them."""
        return 0

    def component(self, name: str) -> Component | None:
        """A part of the peak."""
        return next((part for part in self.plan.components if part.name == name), None)

    def device(self) -> Band:
        """What the driver says this process holds at its peak."""
        best = self.plan.memory.device.best if self.plan.memory is not None else self.plan.needed_best
        return Band(low=self.plan.needed_low, best=best, high=max(best, self.plan.needed_high))

    def point(self, message: Message) -> Point:
        """The phase of the step that a traceback names; the fullest when it names none."""
        names = _TRAINING_POINTS.get(message.context.get("phase", ""), ())
        phases = [phase for phase in self.plan.phases if phase.name in names] or list(self.plan.phases)
        peak = max(phases, key=lambda phase: phase.allocated_bytes)
        return Point(name=peak.name, allocated=exactly(peak.allocated_bytes))

    def of(self, message: Message) -> TrainingWorkload:
        """The same: a trainer's message names no option."""
        return self


Workload = ServingWorkload | TrainingWorkload


def on_card_of(workload: Workload, total_bytes: int) -> Workload:
    """The workload on an unnamed card of this size, where the user named none."""
    card, said = unnamed_gpu(total_bytes), "the card's size is taken from the text"
    if isinstance(workload, ServingWorkload):
        deployment = replace(workload.question.deployment, gpu=card, gpu_memory_bytes=total_bytes)
        return replace(workload, question=replace(workload.question, deployment=deployment), taken=(said,))
    question = replace(workload.question, gpu=card, gpu_memory_bytes=total_bytes)
    return replace(workload, question=question, taken=(said,))
