"""`vram-planner formats`: the storage formats of weights and caches, and what they come to on a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from difflib import get_close_matches
from enum import Enum
from typing import Annotated

import typer

from planner.errors import PlannerError, UsageError
from planner.memory.cache.formats import CacheFormat, cache_formats
from planner.memory.cache.kv_cache import layer_caches
from planner.memory.exports import EXPORTS
from planner.memory.format_table import format_rows
from planner.memory.ggml.mixes import mix_names
from planner.memory.quality.evidence import (
    band_rows,
    kept_in_short,
    metric_class,
    rows_of,
    size_class,
)
from planner.memory.quality.evidence import rows as evidence_rows
from planner.memory.quantisation import plain_scheme, scheme_from_config, scheme_from_name
from planner.memory.schemes.scheme import WeightScheme
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.spec import ModelSpec
from planner.model.tensors import tensors
from planner.report.rows import Column, Format, plain, render_rows
from planner.units import gib

# Without a model: bits of a square matrix of this width, nothing left out.
_WIDTH = 4096
_PLAIN = ("float32", "bfloat16", "float16")


class Kind(str, Enum):
    """What a format stores."""

    ALL = "all"
    WEIGHT = "weight"
    CACHE = "cache"

    def __str__(self) -> str:
        return self.value


def formats(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="Count on this model; without it, on one square matrix.")
    ] = "",
    kind: Annotated[Kind, typer.Option("--kind", help="Formats of weights, of caches, or both.")] = Kind.ALL,
    evidence: Annotated[
        str, typer.Option("--evidence", metavar="FORMAT", help="Every published row of the quality of this format.")
    ] = "",
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List what --quantization and --kv-cache-dtype take, with bits per weight.

    With MODEL the bits are those of the whole model: what an export leaves in 16 bit counts, so that Q4_K_M is 4.9 on
    one model and 6.3 on another. A model that is already quantised has a row of its own, "as published".

    With MODEL there is also what is published of their quality at its size: "no evidence" where nothing is. --evidence
    lists the rows behind it, with MODEL those of its size alone.

    Examples: vram-planner formats; vram-planner formats Qwen/Qwen3-8B --kind weight --format csv; vram-planner formats
    --evidence awq
    """
    loaded = load_model(model) if model else None
    if evidence:
        _print_evidence(evidence, loaded, format)
        return
    rows: list[dict[str, object]] = []
    if kind is not Kind.CACHE:
        rows += _weights(loaded)
    if kind is not Kind.WEIGHT:
        rows += (_cache(found, loaded) for found in cache_formats().values())
    for row in rows:
        name, of = str(row["name"]), "cache" if row["kind"] == "cache" else "weights"
        plain_row = loaded is None or name in (*_PLAIN, "as published")
        row["quality"] = None if plain_row or loaded is None else kept_in_short(name, of, loaded.parameters)
        row["quality_bands"] = [] if plain_row or loaded is None else band_rows(name, of, loaded.parameters)
    asked = ("size_bytes", "token_bytes", "quality")
    columns = [column for column in _COLUMNS if loaded is not None or column.field not in asked]
    typer.echo(render_rows(rows, columns=columns, format=format, query={"model": model or None, "kind": str(kind)}))


def _print_evidence(name: str, model: Model | None, format: Format) -> None:
    """The published rows of a format, newest last.

    Raises:
        UsageError: nothing is published of it; names what there is.
    """
    parameters = model.parameters if model is not None else None
    found = [row for kind in ("weights", "cache") for row in rows_of(name, kind, parameters)]
    if not found:
        known = sorted({row.format for row in evidence_rows()}, key=str.lower)
        near = get_close_matches(name, known, n=3)
        of = f" for models of {size_class(parameters)}" if parameters is not None and name in known else ""
        hint = f"; is it {' or '.join(near)}?" if near and not of else ""
        raise UsageError(f"--evidence: no published rows of {name[:40]!r}{of}{hint}", field="evidence")
    rows = [asdict(row) | {"metric_class": metric_class(row.metric)} for row in found]
    query = {"evidence": name, "model": model.id if model is not None else None}
    typer.echo(render_rows(rows, columns=_EVIDENCE_COLUMNS, format=format, query=query))


def _weights(model: Model | None) -> Iterator[dict[str, object]]:
    spec = model.spec if model is not None else None
    if spec is not None and spec.quantization_config is not None:
        yield _weight(spec, "as published", "", scheme_from_config(spec))
        spec = replace(spec, quantization_config=None)
    for dtype in _PLAIN:
        yield _weight(spec, dtype, dtype, plain_scheme(dtype))
    for name, export in EXPORTS.items():
        yield _weight(spec, name, export.format, scheme_from_name(name, spec) if spec is not None else None)
    for name in mix_names():
        scheme = scheme_from_name(name, spec) if spec is not None else None
        yield _weight(spec, name, "", scheme)


def _weight(spec: ModelSpec | None, name: str, row: str, scheme: WeightScheme | None) -> dict[str, object]:
    known = format_rows().get(row)
    size: int | None = None
    bits: float | None = None
    if spec is not None and scheme is not None:
        size = elements = 0
        for tensor in tensors(spec):
            size += scheme.format_of(tensor).bytes(tensor.shape, tensor.input_dim)
            elements += tensor.numel
        bits = size * 8 / elements
    elif known is not None:
        bits = known.format.bits_per_weight((_WIDTH, _WIDTH))
    return {
        "name": name,
        "kind": "weight",
        "family": known.family if known is not None else "gguf mix" if name in mix_names() else "",
        "engine": None,
        "bits": None if bits is None else round(bits, 3),
        "size_bytes": size,
        "token_bytes": None,
        "confidence": known.confidence if known is not None else "high",
        "source": known.source if known is not None else "llama.cpp src/llama-quant.cpp",
        "notes": list(scheme.notes) if scheme is not None else [],
    }


def _cache(found: CacheFormat, model: Model | None) -> dict[str, object]:
    token: int | None = None
    if model is not None:
        try:
            token = sum(entry.count * entry.slot_bytes for entry in layer_caches(model.spec.layers, found))
        except PlannerError:
            token = None  # this format cannot store this model's kind of cache
    return {
        "name": found.name,
        "kind": "cache",
        "family": found.engine,
        "engine": f"{found.engine} {found.first_version}+" if found.first_version else found.engine,
        "bits": round(found.bits_per_element, 3),
        "size_bytes": None,
        "token_bytes": token,
        "confidence": found.confidence,
        "source": found.source,
        "notes": [],
    }


def _gib(value: object) -> str:
    return gib(value) if isinstance(value, int) else "-"


def _bits(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "-"


_COLUMNS = (
    Column(field="name", heading="Format"),
    Column(field="kind", heading="Kind"),
    Column(field="family", heading="Family", importance=1),
    Column(field="bits", heading="Bits", text=_bits, right=True),
    Column(field="size_bytes", heading="Weights GiB", text=_gib, right=True),
    Column(field="token_bytes", heading="Cache B/token", text=plain, right=True),
    Column(field="quality", heading="Kept"),
    Column(field="confidence", heading="Confidence", importance=2),
)
_EVIDENCE_COLUMNS = (
    Column(field="format", heading="format", importance=1),
    Column(field="kind", heading="kind", importance=3),
    Column(field="model", heading="model"),
    Column(field="metric", heading="metric"),
    Column(field="baseline", heading="before", importance=4),
    Column(field="quantised", heading="after", importance=4),
    Column(field="change", heading="kept", right=True),
    Column(field="source", heading="source", importance=2),
    Column(field="date", heading="date"),
    Column(field="note", heading="note", importance=5),
)
