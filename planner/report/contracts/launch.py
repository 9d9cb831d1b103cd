"""What `plan` prints: what was read of each source, and each plan as `serve` or `train` prints it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from planner.report.contracts.parts import Part, Verdict


class Placed(Part):
    """A value with its place, and how it came to be: stated, a default of the source, an environment variable."""

    value: Any
    file: str
    line: int
    how: str


class Place(Part):
    """Where the model stands."""

    file: str
    line: int
    how: str


class LaunchedPlan(Part):
    """A server or a training run as its source states it; null is not stated."""

    kind: Literal["serve", "train"]
    engine: str | None = Field(None, description="of a server")
    framework: str | None = Field(None, description="of a training run")
    version: str | None
    version_source: str | None = None
    model: str | None
    model_source: str | None = None
    model_at: Place | None = None
    card: str | None = Field(description="as written")
    card_key: str | None = Field(description="its id in the table of cards")
    gpus: int | None = Field(description="of one replica; of a training run all of them")
    replicas: int | str
    nodes: int | None = None
    name: str | None = None
    device: str | None = None
    variant: str | None = None
    inputs: dict[str, Placed] = Field(description="stated values under the tool's own option names")
    also: dict[str, Placed] = Field(description="options that are handed on as they stand")
    defaults: dict[str, Any] = Field(description="the tool's own defaults for what is not stated")
    host: dict[str, int | bool] = Field(description="bytes of host memory, and whether the host's IPC is shared")
    environment: list[str] = Field(description="names of variables that are set, never their values")


class LaunchError(Part):
    """Why a source cannot be read."""

    exit: Literal[2]
    message: str


class LaunchRead(Part):
    """One source: what was recognised and read."""

    file: str
    form: str
    outcome: Literal["plan", "partial", "error"]
    plans: list[LaunchedPlan]
    needs: list[str] = Field(description="what must be asked")
    unread: list[str] = Field(description="what was seen and not used, and whether memory may depend on it")
    notes: list[str]
    error: LaunchError | None


class PlannedLaunch(Part):
    """What `serve` or `train` says of one plan."""

    name: str | None
    kind: Literal["serve", "train"]
    model: str | None
    verdict: Verdict
    message: str | None
    command: str | None = Field(description="the line that asks the same")
    needed: dict[str, int] = Field(description="bytes per GPU that do not depend on the card, where none is stated")
    result: dict[str, Any] | None = Field(description="as `serve` or `train` prints it")


class Plan(Part):
    """`plan`: everything that was read, and what comes of it."""

    schema_: Literal[2] = Field(alias="schema")
    launch: list[LaunchRead]
    plans: list[PlannedLaunch]
    verdict: Verdict
