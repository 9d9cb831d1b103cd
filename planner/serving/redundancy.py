"""Spare replicas: how many, and what is left when some fail."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from planner.errors import UsageError

_REDUNDANCY: Final = re.compile(r"(?:n\+)?(\d{1,6})|(\d{1,4}(?:\.\d+)?)%|zones=(\d{1,3})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redundancy:
    """Spare replicas: a number (N+1), a share of the replicas, or zones of which one may fail."""

    spares: int = 0
    share: float = 0.0
    zones: int = 0

    def replicas(self, needed: int) -> int:
        """Replicas to run when `needed` carry the load."""
        if self.zones:
            return self.zones * -(-needed // (self.zones - 1))
        return needed + max(self.spares, math.ceil(round(needed * self.share, 9)))

    def lost(self, replicas: int) -> int:
        """Replicas lost in the failure it is made for: one, or a zone's."""
        return -(-replicas // self.zones) if self.zones else min(1, replicas)


NO_SPARES: Final = Redundancy()


def parse_redundancy(text: str) -> Redundancy:
    """Redundancy as people write it: "0", "N+1", "20%", "zones=3".

    Raises:
        UsageError: none of these.
    """
    match = _REDUNDANCY.fullmatch(text.strip())
    if match is None or match[3] in ("0", "1"):
        raise UsageError(
            f"--redundancy is {text[:40]!r}; expected 0, N+1, N+2, 20% or zones=3 (2 or more)", field="redundancy"
        )
    if match[3]:
        return Redundancy(zones=int(match[3]))
    if match[2]:
        return Redundancy(share=float(match[2]) / 100)
    return Redundancy(spares=int(match[1]))
