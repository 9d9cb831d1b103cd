"""What the requests are: how many at once, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.contract.lengths import Lengths, admission_point, parse_lengths, request_lengths, write_lengths

WORKLOAD = "Workload"
Accept = Literal["tight", "fits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The requests of a serving plan.

    Args:
        concurrency: requests that must fit at once, at max_model_len or at the admission percentile of the lengths.
        input_len, output_len: tokens of prompts and answers, when the question is not max_model_len alone.
        accept: the verdict that counts as fitting: "tight", at best estimates; "fits", with every term high.
    """

    concurrency: Annotated[
        int,
        Ge(1),
        Le(1 << 20),
        option("Requests that must fit at once.", panel=WORKLOAD, ours=True, common=True),
    ] = 1
    input_len: Annotated[
        Lengths | None,
        option(
            "600, mean=600 or p50=600,p95=4000,p99=12000.",
            panel=WORKLOAD,
            unit="tokens",
            read=parse_lengths,
            write=write_lengths,
            ours=True,
            common=True,
        ),
    ] = None
    output_len: Annotated[
        Lengths | None,
        option(
            "As --input-len.",
            panel=WORKLOAD,
            unit="tokens",
            read=parse_lengths,
            write=write_lengths,
            ours=True,
            common=True,
        ),
    ] = None
    accept: Annotated[
        Accept,
        option("Which verdict counts as fitting, here and in every proposal.", panel=WORKLOAD, ours=True),
    ] = "tight"

    @property
    def points(self) -> list[tuple[str, int]]:
        """Tokens of a whole request at each statistic that both sides state."""
        return request_lengths(self.input_len, self.output_len)

    @property
    def admission(self) -> tuple[str, int] | None:
        """The statistic that admission is planned at, and its tokens."""
        return admission_point(self.points)

    def accepts(self, verdict: str) -> bool:
        """Whether a plan with this verdict counts as fitting."""
        return verdict == "fits" or (self.accept == "tight" and verdict == "tight")


ONE_REQUEST = Workload()
"""A request of max_model_len: the workload of a question that states none."""
