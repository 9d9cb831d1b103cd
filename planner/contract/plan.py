"""The answer of every engine: what each device holds, how many requests its cache takes, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from planner.contract.component import Component

if TYPE_CHECKING:
    from planner.contract.workload import Workload
    from planner.model.model import Model

Verdict = Literal["fits", "tight", "does_not_fit", "refused", "unknown"]
VERDICTS: dict[str, str] = {
    "fits": "fits",
    "tight": "tight",
    "does_not_fit": "does not fit",
    "refused": "refused",
    "unknown": "unknown",
}
"""Every verdict with its words for people, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card, or the host, and what a plan puts on it; sizes in bytes.

    Args:
        name: as people know it.
        kind: "gpu" or "host".
        count: equal devices that this one stands for.
        total_bytes: what the driver, or the operating system, reports.
        components: what it holds, the cache aside.
        cache_bytes: what is reserved for the cache.
        claimed_bytes: what the engine takes of it at start, its cache included; 0 where it takes what it needs.
        free_bytes: what is left at best estimates; negative where it does not hold all.
    """

    name: str
    kind: Literal["gpu", "host"]
    count: int = 1
    total_bytes: int
    components: tuple[Component, ...]
    cache_bytes: int
    claimed_bytes: int = 0
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The cache of the fullest device; sizes in bytes.

    Args:
        bytes_per_token: growth of one sequence by a token, as the model needs it.
        bytes_per_sequence: of one sequence at max_model_len.
        window_bytes_per_sequence, state_bytes_per_sequence: of which in sliding windows and recurrent states.
        reserved_bytes: what the engine keeps for all sequences.
        tokens: what the engine says that it holds; None where it keeps no cache of tokens.
        max_concurrency: requests of max_model_len that it holds.
        request_bytes: what one request of the length that admission is planned at reserves.
        longest: the longest request that fits at the asked concurrency, never beyond the model's positions.
    """

    bytes_per_token: int
    bytes_per_sequence: int
    window_bytes_per_sequence: int = 0
    state_bytes_per_sequence: int = 0
    reserved_bytes: int
    tokens: int | None
    max_concurrency: float
    request_bytes: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPoint:
    """How many requests fit when all have this length; none where the server refuses so long a request."""

    at: str
    tokens_per_request: int
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The peak while the weights are loaded, in bytes on one GPU and on the host."""

    gpu_peak_bytes: int
    host_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupError:
    """What the engine would stop with.

    Args:
        kind: "weights", "no_cache", "request_too_long", "free_memory", "outside_budget", "max_model_len", ...
        message: the engine's own words where they are known.
        refused: no amount of memory would help.
    """

    kind: str
    message: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """The answer to "will it serve, and how many at once". Engines extend it by what only they have.

    Args:
        deployment: the inputs as given; resolved: with the engine's defaults applied, under its own names.
        engine, engine_version: whose rules these are.
        devices: every distinct device, the fullest first.
        unknown: terms that matter and are not known; not empty exactly where the verdict is "unknown".
        max_model_len: the longest request that the server accepts.
        positions: the longest that it accepts for this model at all.
    """

    model: Model
    deployment: Any
    workload: Workload
    engine: str
    engine_version: str
    resolved: Any
    devices: tuple[Device, ...]
    cache: Cache
    max_model_len: int
    positions: int
    points: tuple[WorkloadPoint, ...]
    load: Load
    verdict: Verdict
    shortfall_bytes: int
    startup_error: StartupError | None
    unknown: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether this verdict counts as fitting, as the workload accepts it."""
        return self.workload.accepts(self.verdict)

    def _repr_html_(self) -> str:
        """The plan as notebooks show it."""
        from importlib import import_module  # a room above: only a notebook asks

        return "\n".join(import_module("planner.report.html.results").serving_parts(self))

    def _repr_markdown_(self) -> str:
        """The plan as notebooks show it."""
        from importlib import import_module  # a room above: only a notebook asks

        return str(import_module("planner.report.serving").render_plan(self, format="markdown"))

    def __repr__(self) -> str:
        cards = "; ".join(f"{device.count} x {device.name}" for device in self.devices[:2])
        return (
            f"<{type(self).__name__} {self.model.id[:80]} with {self.engine} {self.engine_version} on {cards[:80]}:"
            f" {VERDICTS[self.verdict]}>"
        )


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of several plans that must all hold."""
    return max(verdicts, key=list(VERDICTS).index)
