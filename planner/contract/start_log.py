"""An engine's start-up log: what it says, and the plan's figures beside those that were printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

COMMAND_LINE: Final = "command line"
GIVEN_MEMORY: Final = "given memory"


@dataclass(frozen=True, slots=True)
class LoggedError:
    """A refusal or failure: its kind, the line's text (cut), and its number."""

    kind: str
    text: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStart:
    """What a start-up log says.

    Args:
        version: the engine's, where it is printed or follows from the log's day.
        words: the options that the log states, as a command line.
        stated: the same and more under the names of measured cases.
        measured: figures under the names of measured cases, sizes in bytes where a name ends in "_bytes".
        by_rank: every figure with the rank that printed it, where ranks print their own.
        errors: what it stopped with, in order.
        recognised: lines that are this engine's.
    """

    version: str | None = None
    words: tuple[str, ...] = ()
    stated: Mapping[str, object] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    by_rank: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    errors: tuple[LoggedError, ...] = ()
    recognised: int = 0

    @property
    def error(self) -> str | None:
        """What it stopped with first."""
        return self.errors[0].text if self.errors else None

    @property
    def ranks(self) -> int:
        """Ranks that printed anything."""
        return len({rank for figures in self.by_rank.values() for rank in figures if rank}) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure of a plan beside the same as it was printed.

    Args:
        mode: COMMAND_LINE, or which printed figure was put in first.
        unit: "GiB", "tokens", "x", ...; "" for a ratio.
    """

    figure: str
    planned: float
    measured: float
    unit: str = "GiB"
    mode: str = COMMAND_LINE


@runtime_checkable
class ReadsLogs(Protocol):
    """An engine that knows its own start-up log."""

    def read_log(self, lines: Iterable[str]) -> MeasuredStart:
        """What a start-up log of this engine says."""
        ...

    def beside(
        self, plan: Any, measured: Mapping[str, float], unknown: Sequence[str] = ()
    ) -> tuple[list[Compared], list[tuple[str, str]]]:
        """What the plan says of printed figures, and (mode, reason) for what cannot be compared.

        Args:
            unknown: inputs that the plan stands on and nobody stated.
        """
        ...
