"""The ggml types: how many elements a block has and how many bytes it takes, by number and by name.

`ggml_types.csv` is the one table of them, each row with its source; weight formats are made from it too.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlType:
    """One type.

    Args:
        number: as GGUF files write it.
        id: "Q4_K".
        block: elements of a block.
        block_bytes: bytes of a block, scales included.
        row_bytes: what each row has besides (a scale of ik_llama.cpp's).
        kind: what it can store, by ";": "weight", "kv"; "" for types that only intermediate results and counts have.
        source, version: where the sizes were read, and in which release.
        confidence: high, medium or low.
    """

    number: int
    id: str
    block: int
    block_bytes: int
    row_bytes: int
    kind: str
    source: str
    version: str
    confidence: str


@cache
def ggml_types() -> dict[int, GgmlType]:
    """Every type, by number."""
    text = files("planner.model.sources.gguf").joinpath("ggml_types.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return {int(row["number"]): _type(row) for row in rows}


def _type(row: dict[str, str]) -> GgmlType:
    return GgmlType(
        number=int(row["number"]),
        id=row["id"],
        block=int(row["block"]),
        block_bytes=int(row["block_bytes"]),
        row_bytes=int(row["row_bytes"]),
        kind=row["kind"],
        source=row["source"],
        version=row["version"],
        confidence=row["confidence"],
    )
