"""Why a plan is tight: what is missing when every term is at its high end."""

from __future__ import annotations

from planner.units import format_size


def why_tight(outside_free_bytes: int, *, requests: int, wanted: int) -> str:
    """The reason in one sentence.

    Args:
        outside_free_bytes: what the rest of the card keeps at high ends; negative when it does not hold all.
        requests: of the length that has to fit, which the cache holds at high ends.
        wanted: requests that have to fit.
    """
    reasons = []
    if requests < wanted:
        reasons.append(f"the cache holds {requests:,} of {wanted:,} requests")
    if outside_free_bytes < 0:
        reasons.append(f"what lives outside the fraction lacks {format_size(-outside_free_bytes)}")
    return f"tight: with every term at its high end {' and '.join(reasons) or 'nothing is left for the cache'}"
