"""A serving question that can be asked again with other inputs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from planner.contract.component import Side, total
from planner.contract.engine import Engine
from planner.contract.lever import Changes
from planner.contract.plan import ServingPlan
from planner.contract.workload import ONE_REQUEST, Workload
from planner.errors import PlannerError
from planner.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuestion:
    """What was asked: an engine, a model, a deployment, and its requests."""

    engine: Engine
    model: Model
    deployment: Any
    workload: Workload = ONE_REQUEST

    def changed(self, changes: Changes) -> ServingQuestion:
        """The question with some inputs of the deployment or the workload changed."""
        workload = {field.name for field in fields(Workload)}
        return replace(
            self,
            deployment=replace(self.deployment, **_only(changes, lambda name: name not in workload)),
            workload=replace(self.workload, **_only(changes, lambda name: name in workload)),
        )

    def ask(self, changes: Changes) -> ServingPlan:
        """The plan with some inputs changed.

        Raises:
            PlannerError: as the engine's plan.
        """
        asked = self.changed(changes) if changes else self
        return self.engine.plan(self.model, asked.deployment, asked.workload)

    def try_ask(self, changes: Changes) -> ServingPlan | None:
        """The same, or None where the engine or the model does not allow the change."""
        try:
            return self.ask(changes)
        except PlannerError:
            return None

    def fits(self, changes: Changes) -> bool:
        """Whether the plan with these changes counts as fitting."""
        plan = self.try_ask(changes)
        return plan is not None and self.accepts(plan)

    def accepts(self, plan: ServingPlan) -> bool:
        """Whether a plan counts as fitting."""
        return self.workload.accepts(plan.verdict)

    @property
    def longest_stated(self) -> int:
        """Tokens of the longest request that the lengths state; 1 where none are given."""
        return max((length for _, length in self.workload.points), default=1)

    def cache_wanted_bytes(self, plan: ServingPlan) -> int:
        """Cache that the asked concurrency reserves on the fullest device."""
        return plan.cache.request_bytes * plan.workload.concurrency

    def needed_bytes(self, plan: ServingPlan, side: Side = "best") -> int:
        """What the fullest device needs: every term, and the cache wanted."""
        return total(plan.devices[0].components, side) + self.cache_wanted_bytes(plan)

    def verdict(self, plan: ServingPlan) -> str:
        """The plan's verdict."""
        return plan.verdict

    def saving(self, before: ServingPlan, after: ServingPlan) -> int:
        """Bytes that `after` needs less than `before` on the fullest device.

        A changed memory fraction changes no need; it moves bytes of the card between the engine and what lives
        outside, and what it moves to the side that was short counts.
        """
        saved = self.needed_bytes(before) - self.needed_bytes(after)
        old, new = before.devices[0], after.devices[0]
        if not saved and old.total_bytes == new.total_bytes:
            return abs(new.claimed_bytes - old.claimed_bytes)
        return saved

    def command(self, plan: ServingPlan) -> str:
        """The engine's command line."""
        return shlex.join(self.engine.command(plan))

    def cards(self, plan: ServingPlan) -> tuple[int, int]:
        """(GPUs, pipeline stages)."""
        cards = [device for device in plan.devices if device.kind == "gpu"]
        return sum(device.count for device in cards), len(cards)

    def settled(self, plan: ServingPlan) -> ServingQuestion:
        """The same question with what the engine fitted by itself (max_model_len -1) written out."""
        return replace(self, deployment=plan.deployment)


def _only(changes: Changes, wanted: Any) -> dict[str, Any]:
    found: Mapping[str, object] = changes
    return {name: value for name, value in found.items() if wanted(name)}
