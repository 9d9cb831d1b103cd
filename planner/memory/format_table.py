"""Named weight formats: the rows of `formats.csv`, and the ggml types, as `WeightFormat` values."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from planner.errors import UnsupportedQuantization
from planner.memory.formats import (
    BitsPerWeight,
    FlatBlocks,
    Grouped,
    Microscaled,
    Plain,
    RowBlocks,
    Scaled,
    WeightFormat,
)
from planner.model.sources.gguf.ggml_types import ggml_types

_STRUCTURES: Mapping[str, type[WeightFormat]] = {
    kind.__name__: kind for kind in (BitsPerWeight, FlatBlocks, Grouped, Microscaled, Plain, RowBlocks, Scaled)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRow:
    """One row: the format, and where its structure was read.

    Args:
        family: gptq, awq, ggml, ...
        source, version: the code or paper that fixes the structure, and which release of it.
        confidence: high, medium or low.
    """

    format: WeightFormat
    family: str
    source: str
    version: str
    confidence: str


@cache
def format_rows() -> dict[str, FormatRow]:
    """Every row, by id."""
    text = files("planner.memory").joinpath("formats.csv").read_text("utf-8")
    rows = {}
    for row in csv.DictReader(text.splitlines()):
        parameters: dict[str, object] = {}
        for pair in row["parameters"].split():
            key, value = pair.split("=")
            parameters[key] = _value(value)
        rows[row["id"]] = FormatRow(
            format=_STRUCTURES[row["structure"]](name=row["id"], **parameters),
            family=row["family"],
            source=row["source"],
            version=row["version"],
            confidence=row["confidence"],
        )
    for kind in ggml_types().values():
        if kind.kind:
            rows[kind.id] = FormatRow(
                format=RowBlocks(
                    name=kind.id, block=kind.block, block_bytes=kind.block_bytes, row_bytes=kind.row_bytes
                ),
                family="ggml",
                source=kind.source,
                version=kind.version,
                confidence=kind.confidence,
            )
    return rows


def weight_format(name: str) -> WeightFormat:
    """The format of that id.

    Raises:
        UnsupportedQuantization: no such row.
    """
    row = format_rows().get(name)
    if row is None:
        raise UnsupportedQuantization(f"unknown weight format {name!r}; see the formats command", field="quantization")
    return row.format


@cache
def grouped_format(name: str, group_size: int) -> Grouped:
    """The grouped format of that id with another group size; -1 or 0 is one group a row.

    Raises:
        UnsupportedQuantization: no such row, or the format has no groups.
    """
    found = weight_format(name)
    if not isinstance(found, Grouped):
        raise UnsupportedQuantization(f"{name} has no groups; leave out the group size", field="group_size")
    group = max(0, group_size)
    return replace(found, name=f"{name} g{group}" if group else f"{name} per channel", group_size=group)


def plain_format(dtype: str | None) -> Plain:
    """The plain type of that name; None is bfloat16.

    Raises:
        UnsupportedQuantization: not float32, float16 or bfloat16.
    """
    row = format_rows().get(dtype or "bfloat16")
    if row is None or not isinstance(row.format, Plain):
        raise UnsupportedQuantization(f"dtype {dtype!r} is not one of float32, float16, bfloat16", field="dtype")
    return row.format


def _value(text: str) -> object:
    if text.isdigit():
        return int(text)
    rows, cross, columns = text.partition("x")
    return (int(rows), int(columns)) if cross and rows.isdigit() else text
