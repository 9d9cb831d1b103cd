"""What the lists print: cards, models, formats, engines; and diagnose and validate."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from planner.report.contracts.parts import Listing, Open, Part


class Gpus(Listing):
    """`gpus`: one row a card; null is not known."""


class Models(Listing):
    """`models`: one row a bundled model."""


class Formats(Listing):
    """`formats`: one row a format of weights or caches."""


class EngineRow(Part):
    """An engine that can be planned."""

    name: str
    title: str
    oldest: str
    newest: str
    inputs: int = Field(description="options of its own that are inputs")


class Engines(Part):
    """`engines`: one row an engine."""

    schema_: Literal[2] = Field(alias="schema")
    query: dict[str, Any]
    rows: list[EngineRow]


class Validate(Open):
    """`validate`: errors by figure, and cases that were not scored."""

    schema_: Literal[2] = Field(alias="schema")
    query: dict[str, Any]
    rows: list[dict[str, Any]]


class Diagnose(Open):
    """`diagnose`: one finding for each failure in the text."""

    schema_: Literal[2] = Field(alias="schema")
    findings: list[dict[str, Any]]
    notes: list[str]
