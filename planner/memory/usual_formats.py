"""The formats of weights that people compare on servers of GPUs, by what a card's kernels take (usual_formats.csv)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from planner.hardware.gpus import Gpu


class UsualFormat(NamedTuple):
    """A format that people compare: its name, and the bits that a weight takes at least."""

    name: str
    least_bits: float


def usual_formats(gpu: Gpu | None) -> tuple[UsualFormat, ...]:
    """The formats for a card, the most bits first; of no card those of the newest."""
    found = []
    for row in _rows():
        if gpu is not None and gpu.vendor and row["vendor"] != gpu.vendor:
            continue
        if gpu is not None and gpu.capability is not None and row["first_capability"]:
            major, _, minor = row["first_capability"].partition(".")
            if gpu.capability < (int(major), int(minor)):
                continue
        one = UsualFormat(row["name"], float(row["least_bits"]))
        if one not in found:
            found.append(one)
    return tuple(found)


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = files("planner.memory").joinpath("usual_formats.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
