"""The numbers that the rules compare with, each with its reason. Sizes in bytes.

They were chosen on public messages whose cause the thread settled; docs/accuracy.md has the score. None is fitted to a
single message.
"""

from __future__ import annotations

from planner.diagnosis.rules.torch_figures import TorchFigures
from planner.units import GIB, MIB, format_size

# A request of this part of the card (a quarter) is large by itself.
HUGE_SHARE = 4
# With this part of the card in use, the request is only the last straw.
FULL_PERCENT = 85
# With this part allocated, slack is no fragmentation.
ALLOCATED_PERCENT = 88
# Slack below this part of the card is the ordinary waste of rounding.
SLACK_PERCENT = 4
# Free minus request above both of these is no coincidence of granularity.
FREE_MARGIN_BYTES = 256 * MIB
FREE_MARGIN_PERCENT = 2
# What something else must hold to be the finding: this part of the card, and a GiB.
OTHER_PERCENT = 10
OTHER_LEAST_BYTES = GIB
# A quarter of the card is an ordinary tensor on cards up to here.
SMALL_CARD_BYTES = 8 * GIB
# The driver of some XPU parts limits one allocation (4 GiB on Arc, about 1 GiB under WSL).
XPU_BLOCK_BYTES = GIB
# What torch asks the driver for when a tensor is smaller: 2 MiB up to 1 MiB, 20 MiB up to 10 MiB.
ROUNDED_REQUESTS = (2 * MIB, 20 * MIB)
# Without a capacity: a quarter of a 48 GiB card is huge on nearly all cards, a quarter of a 16 GiB card on many.
HUGE_ALONE_BYTES = 12 * GIB
LARGE_ALONE_BYTES = 4 * GIB


def percent(part: int, whole: int) -> int:
    """`part` in per cent of `whole`, rounded; 0 when the whole is not known."""
    return 0 if whole <= 0 else round(part * 100 / whole)


def other_least(total: int) -> int:
    """What something else must hold on a card of `total` bytes to be the finding."""
    return max(total * OTHER_PERCENT // 100, OTHER_LEAST_BYTES)


def is_huge(r: TorchFigures) -> bool:
    """Whether the request is a quarter of the card or more."""
    return r.tried is not None and r.total is not None and r.tried * HUGE_SHARE >= r.total


def has_clue(r: TorchFigures) -> bool:
    """Whether slack exceeds the request; not for rounded requests with ordinary slack, which any slack beats."""
    if r.tried is None or r.slack is None or r.slack <= r.tried:
        return False
    ordinary = r.total is not None and r.slack * 100 < r.total * SLACK_PERCENT
    return not (ordinary and r.tried in ROUNDED_REQUESTS)


def has_other(r: TorchFigures) -> bool:
    """Whether more than 10% of the card is unexplained, without the allowance for a context."""
    return r.other is not None and r.total is not None and r.other * 100 > r.total * OTHER_PERCENT


def slack_sentence(r: TorchFigures) -> str:
    """The slack against the request, in words."""
    part = "" if r.total is None else f", {percent(r.slack or 0, r.total)}% of the card"
    return (
        f"{format_size(r.slack or 0)} reserved but unallocated against {format_size(r.tried or 0)} asked for{part}: "
        "slack inside partly used segments, since wholly free ones were given back before the message"
    )


def rounded_note(tried: int) -> str:
    """What a rounded request says of the tensor, as an appendix to its size."""
    if tried not in ROUNDED_REQUESTS:
        return ""
    return f" (a rounded size: the tensor is at most {'1 MiB' if tried == ROUNDED_REQUESTS[0] else '10 MiB'})"
