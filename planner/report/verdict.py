"""How a verdict is shown, and what exit status it makes."""

from __future__ import annotations

from planner.contract.plan import VERDICTS

_COLOURS = {"fits": 32, "tight": 33, "does_not_fit": 31, "refused": 31, "unknown": 35}
_STATUS = {"does_not_fit": 1, "tight": 1, "fits": 0, "refused": 2, "unknown": 2}


def coloured(verdict: str) -> str:
    """The verdict's words in the colour of a terminal."""
    return f"\x1b[1;{_COLOURS[verdict]}m{VERDICTS[verdict]}\x1b[0m"


def exit_status(verdict: str, *, accepted: bool) -> int:
    """0 where the verdict is accepted, 1 where memory is missing, 2 where nothing can be said or done."""
    return 0 if accepted else _STATUS[verdict]
