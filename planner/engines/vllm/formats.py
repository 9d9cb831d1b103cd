"""The formats of weights that people compare on vLLM, by what a card's kernels take (tables/usual_formats.csv)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from planner.contract.engine import UsualFormat
from planner.hardware.gpus import Gpu


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
    text = files("planner.engines.vllm.tables").joinpath("usual_formats.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
