"""The least and the greatest --mem-fraction-static that work.

A start that finds no room for its pools wants a higher fraction, a run that dies beside them a lower one. Both bounds
are found by planning: the pools grow with the fraction and what is left shrinks, so either side has one turning point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STEPS = 1000
"""The fraction is stated in thousandths."""


@dataclass(frozen=True, slots=True)
class Fractions:
    """The bounds as the command line takes them; None where no fraction does.

    Args:
        least: from here on the pools hold the asked requests.
        greatest: up to here what lives beside the pools fits.
        starts: from here on the engine starts at all.
    """

    least: float | None
    greatest: float | None
    starts: float | None

    @property
    def works(self) -> bool:
        """Some fraction satisfies both."""
        return self.least is not None and self.greatest is not None and self.least <= self.greatest


def working_fractions(
    holds: Callable[[float], bool], leaves: Callable[[float], bool], starts: Callable[[float], bool]
) -> Fractions:
    """The bounds by three questions: do the pools hold the requests, does the rest fit, does the engine start."""
    return Fractions(least=_first(holds), greatest=_last(leaves), starts=_first(starts))


def _first(true_from: Callable[[float], bool]) -> float | None:
    """The smallest fraction at which it holds, if it then holds for all above."""
    low, high = 0, STEPS
    if not true_from(high / STEPS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if true_from(middle / STEPS):
            high = middle
        else:
            low = middle
    return high / STEPS


def _last(true_to: Callable[[float], bool]) -> float | None:
    low, high = 1, STEPS
    if not true_to(low / STEPS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if true_to(middle / STEPS):
            low = middle
        else:
            high = middle
    return low / STEPS
