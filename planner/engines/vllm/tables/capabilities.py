"""The oldest card that each version of vLLM takes a quantisation method on (`vllm_capabilities.csv`)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import Final

from planner.engines.vllm.tables.profile import parse_version

# What --quantization and quant_method say, by how they begin; a name that is not here has no such limit.
_METHODS: Final = (
    ("gptq", "gptq"),
    ("awq", "awq"),
    ("fp8-", "compressed-tensors"),
    ("fp8", "fp8"),
    ("w4a16", "compressed-tensors"),
    ("w8a", "compressed-tensors"),
    ("compressed-tensors", "compressed-tensors"),
    ("bitsandbytes", "bitsandbytes"),
    ("bnb-", "bitsandbytes"),
    ("nf4", "bitsandbytes"),
    ("fp4", "bitsandbytes"),
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("torchao", "torchao"),
)


def least_capability(name: str, version: str) -> tuple[int, int] | None:
    """The compute capability that this version asks for, (7, 5); None when it asks for none known here."""
    wanted = name.strip().lower().replace("_", "-")
    method = next((method for start, method in _METHODS if wanted.startswith(start)), None)
    asked, found = parse_version(version), None
    for known, first, capability in _rows():
        if known == method and first <= asked:
            found = divmod(capability, 10)
    return found


@cache
def _rows() -> tuple[tuple[str, tuple[int, ...], int], ...]:
    text = files("planner.engines.vllm.tables").joinpath("capabilities.csv").read_text("utf-8")
    return tuple(
        (row["method"], tuple(int(part) for part in row["first_version"].split(".")), int(row["capability"]))
        for row in csv.DictReader(text.splitlines())
    )
