"""Which quantised checkpoints a trainer can put adapters on, and which it can first turn back into 16 bit."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from planner.errors import UsageError

# modelopt's own files name an algorithm in place of a method
_UNNAMED = "modelopt"


@cache
def quantisers() -> Mapping[str, Mapping[str, str]]:
    """The table, by `quant_method`."""
    text = files("planner.training").joinpath("stacks/quantisers.csv").read_text("utf-8")
    return {row["quant_method"]: row for row in csv.DictReader(text.splitlines())}


def check_trains(config: Mapping[str, object], *, dequantize: bool) -> None:
    """Refuse a checkpoint whose quantiser cannot train, or cannot be dequantised.

    Raises:
        UsageError: says what to do instead.
    """
    method = str(config.get("quant_method") or _UNNAMED)
    row = quantisers().get(method)
    if row is None:
        raise UsageError(
            f"whether a {method[:40]} checkpoint can be trained is not known; known are {', '.join(quantisers())}",
            field="quant_method",
        )
    if dequantize and row["dequantizes"] != "yes":
        raise UsageError(
            f"--dequantize: transformers has no way back from {method}; use the plain checkpoint", field="dequantize"
        )
    if not dequantize and row["trains"] != "yes":
        instead = (
            "--dequantize plans with 16-bit weights" if row["dequantizes"] == "yes" else "use the plain checkpoint"
        )
        raise UsageError(f"a {method} checkpoint cannot be trained ({row['source']}); {instead}", field="method")
