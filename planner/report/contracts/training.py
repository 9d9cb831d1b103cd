"""What train prints."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from planner.report.contracts.parts import Advised, Component, ModelFacts, Part, Verdict


class Rank(Part):
    """A distinct rank and its terms."""

    rank: int
    components: list[Component]


class Train(Advised):
    """`train`: one fine-tune."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    schema_: Literal[2] = Field(alias="schema")
    model: ModelFacts
    recipe: dict[str, Any] = Field(description="every input, defaults filled in")
    trainable_parameters: int
    bytes_per_parameter: str
    ranks: list[Rank]
    peak: dict[str, Any]
    needed: dict[str, int] = Field(description="low, best and high bytes of card")
    phases: list[dict[str, Any]]
    host_bytes: int
    largest_that_fits: dict[str, Any] | None
    verdict: Verdict
    shortfall_bytes: int
    notes: list[str]
