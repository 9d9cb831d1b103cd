"""A serving question that can be asked again with other inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.contract.component import Side
from planner.contract.lengths import Lengths, admission_point, request_lengths
from planner.engines.vllm.command import command_line
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.plan import ServingPlan, plan_serving, with_changes
from planner.errors import PlannerError
from planner.levers.candidates import fraction
from planner.levers.lever import Changes, Lever
from planner.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuestion:
    """What was asked: a model, a deployment, and the lengths of its requests where they were given."""

    model: Model
    deployment: Deployment
    input_lengths: Lengths | None = None
    output_lengths: Lengths | None = None

    def ask(self, changes: Changes) -> ServingPlan:
        """The plan with some inputs changed.

        Raises:
            PlannerError: as `plan_serving`.
        """
        deployment = with_changes(self.deployment, **changes)
        return plan_serving(
            self.model, deployment, input_lengths=self.input_lengths, output_lengths=self.output_lengths
        )

    def try_ask(self, changes: Changes) -> ServingPlan | None:
        """The same, or None where the engine or the model does not allow the change."""
        try:
            return self.ask(changes)
        except PlannerError:
            return None

    def fits(self, changes: Changes) -> bool:
        """Whether the plan with these changes fits, every term at its high end."""
        plan = self.try_ask(changes)
        return plan is not None and plan.verdict == "fits"

    def is_tight(self, changes: Changes) -> bool:
        """Whether the plan with these changes fits at best estimates."""
        plan = self.try_ask(changes)
        return plan is not None and plan.verdict != "does_not_fit"

    @property
    def longest_stated(self) -> int:
        """Tokens of the longest request that the lengths state; 1 where none are given."""
        points = request_lengths(self.input_lengths, self.output_lengths)
        return max((length for _, length in points), default=1)

    def request_length(self, plan: ServingPlan) -> int:
        """Tokens of the request that admission is planned at."""
        point = admission_point(request_lengths(self.input_lengths, self.output_lengths))
        longest = plan.resolved.max_model_len
        return min(point[1], longest) if point else longest

    def cache_wanted_bytes(self, plan: ServingPlan) -> int:
        """KV cache that the asked concurrency reserves on the fullest rank."""
        blocks = plan.pool.blocks_for(self.request_length(plan)) * plan.resolved.asked.concurrency
        return blocks * plan.pool.bytes_per_block

    def needed_bytes(self, plan: ServingPlan, side: Side = "best") -> int:
        """What the fullest rank needs of its card: every term inside and outside the fraction, and the cache wanted."""
        parts = plan.budget.inside + plan.budget.outside
        return sum(part.at(side) for part in parts) + self.cache_wanted_bytes(plan)

    def verdict(self, plan: ServingPlan) -> str:
        """The plan's verdict."""
        return plan.verdict

    def saving(self, before: ServingPlan, after: ServingPlan) -> int:
        """Bytes that `after` needs less than `before` on the fullest rank.

        A changed memory fraction changes no need; it moves bytes of the card between the engine and what lives
        outside, and what it moves to the side that was short counts.
        """
        saved = self.needed_bytes(before) - self.needed_bytes(after)
        same_card = before.resolved.gpu_memory_bytes == after.resolved.gpu_memory_bytes
        if not saved and same_card and after.utilization != before.utilization:
            return abs(after.budget.requested_bytes - before.budget.requested_bytes)
        return saved

    def command(self, plan: ServingPlan) -> str:
        """The `vllm serve` line."""
        return command_line(plan)

    def cards(self, plan: ServingPlan) -> tuple[int, int]:
        """(GPUs, pipeline stages)."""
        asked = plan.resolved.asked
        stages = asked.pipeline_parallel_size
        return asked.tensor_parallel_size * stages * asked.data_parallel_size, stages

    def renewed(self, lever: Lever, changes: Changes) -> Lever:
        """The memory fraction's values depend on what other changes leave outside it."""
        if lever.kind.name != "gpu-memory-utilization":
            return lever
        plan = self.try_ask(changes)
        return lever if plan is None else next(fraction(plan), lever)

    def helps(self, before: ServingPlan, lever: Lever) -> bool:
        """The fraction's move goes to the side that is short: down is no help while the cache itself does not fit."""
        if lever.kind.name != "gpu-memory-utilization" or before.verdict != "does_not_fit":
            return True
        rises = float(lever.values[-1]) > before.resolved.gpu_memory_utilization
        error = before.startup_error
        outside_short = before.outside.free_bytes < 0 or (
            error is not None and error.kind in ("free_memory", "outside_budget")
        )
        return rises != outside_short

    def settled(self, plan: ServingPlan) -> ServingQuestion:
        """The same question with a fitted context (max_model_len -1) written out."""
        if self.deployment.max_model_len != -1:
            return self
        return replace(self, deployment=replace(self.deployment, max_model_len=plan.resolved.max_model_len))
