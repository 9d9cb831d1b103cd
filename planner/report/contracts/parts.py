"""Parts that several results share. All sizes are bytes, per GPU unless the name says otherwise."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["fits", "tight", "does_not_fit", "refused", "unknown"]
Evidence = Literal["exact", "derived", "measured", "assumed"]


class Part(BaseModel):
    """A part of a result: no key beyond those that are described."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Open(BaseModel):
    """A part to which an engine may add keys of its own."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Component(Part):
    """A memory term: low, best and high bytes, how it is known, the arithmetic, and where that was read."""

    name: str
    low: int
    best: int
    high: int
    evidence: Evidence
    formula: str
    source: str
    cause: str = Field("", description="terms of one cause rise and fall together")


class Device(Part):
    """A card, or the host, and what is put on it."""

    name: str
    kind: Literal["gpu", "host"]
    count: int = Field(description="equal devices that this one stands for")
    total_bytes: int
    components: list[Component]
    cache_bytes: int
    free_bytes: int = Field(description="negative where it does not hold all")


class ModelFacts(Open):
    """The model that was planned."""

    id: str
    parameters: int
    active_parameters: int
    architecture: str | None
    dtype: str | None
    max_position_embeddings: int | None


class Setting(Part):
    """A change of one input."""

    name: str
    phase: str
    from_: str = Field(alias="from")
    to: str
    flag: str = Field(description="what to paste")
    detail: str


class Lever(Setting):
    """What one change does alone."""

    saves_bytes: int
    verdict: Verdict
    fits_alone: bool = Field(description="the plan with it counts as fitting, as --accept says")
    cost: str


class PlannedSetting(Setting):
    """One change of several that are needed together."""

    cost: str


class ChangePlan(Part):
    """Changes that together make it fit, none of which can be left out."""

    levers: list[PlannedSetting]
    verdict: Verdict
    cost: str
    saves_bytes: int
    command: str


class Excess(Part):
    """A term that alone is more than the card."""

    name: str
    bytes: int
    excess_bytes: int


class Relief(Part):
    """Which card, or how many of the same, would do."""

    terms_beyond_the_card: list[Excess]
    sum_excess_bytes: int
    gpu: str | None
    gpu_flag: str | None
    cards: int | None
    cards_flag: str | None


class Goal(Part):
    """The answer to --goal."""

    what: str
    at_requests: int | None
    value: str | None
    flag: str | None
    verdict: Verdict | None
    command: str | None


class Advised(Part):
    """What could be changed."""

    levers: list[Lever]
    plans: list[ChangePlan]
    relief: Relief | None = None
    goal: Goal | None = None


class Listing(Part):
    """A table: the question and its rows."""

    schema_: Literal[2] = Field(alias="schema")
    query: dict[str, Any]
    rows: list[dict[str, Any]]
