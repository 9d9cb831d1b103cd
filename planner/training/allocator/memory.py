"""What the allocator reserves and what nvidia-smi shows, each with its band, from the replay where there is one."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files

from planner.contract.component import Component
from planner.training.allocator.replay import Script, replay


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes at least, best, and at most."""

    low: int
    best: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardMemory:
    """Reserved by torch, and in use on the device (its context and libraries too).

    Args:
        derived: from a replay; otherwise from measured ratios.
    """

    reserved: Band
    device: Band
    derived: bool
    source: str


def card_memory(
    script: Script | None,
    usual: Band,
    outside: Sequence[Component],
    card_bytes: int,
    in_place_bytes: int = 0,
    beside_bytes: int = 0,
    allocated_bytes: int = 0,
    *,
    expandable: bool = False,
) -> CardMemory:
    """The bands.

    Args:
        usual: by ratios, where nothing can be replayed.
        outside: what is not torch's.
        in_place_bytes: fp32 logits of a loss that writes over them: one tensor of them more is reserved in the runs at
            hand, which the replay does not show.
        beside_bytes: models that the replayed step does not have. allocated_bytes: at the peak of all phases.
        expandable: segments grow.
    """
    low, best, high = (sum(part.at(side) for part in outside) for side in ("low", "best", "high"))
    if script is None:
        reserved, source = usual, "reserved over allocated, as measured (fragmentation.csv)"
    else:
        room = card_bytes - best
        row = _spread("fsdp" if script.sharded is not None else "one")
        size = replay(script, room - beside_bytes, expandable=expandable).reserved + beside_bytes
        size = max(size, allocated_bytes)
        most = min(max(size, room), int(size * row.high) + in_place_bytes)
        # near the card's end a request fails and all that is free goes: how much was reserved then depends on its size
        least = usual.low if size > room - in_place_bytes or size * 20 > room * 19 else int(size * row.low)
        reserved, source = Band(min(least, size), size, most), row.source
    device = Band(reserved.low + low, reserved.best + best, min(reserved.high + high, max(card_bytes, reserved.best)))
    return CardMemory(reserved=reserved, device=device, derived=script is not None, source=source)


@dataclass(frozen=True, slots=True)
class _Row:
    low: Fraction
    high: Fraction
    source: str


@cache
def _rows() -> dict[str, _Row]:
    text = files("planner.training").joinpath("allocator/replayed_spread.csv").read_text("utf-8")
    return {
        row["kind"]: _Row(Fraction(row["low"]), Fraction(row["high"]), row["source"])
        for row in csv.DictReader(text.splitlines())
    }


def _spread(kind: str) -> _Row:
    return _rows()[kind]
