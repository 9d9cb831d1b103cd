"""llama.cpp under other names: what each program sets where the user does not."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One program's defaults; `ctx_size` 0 is the model's own length."""

    name: str
    title: str
    n_batch: int
    n_ubatch: int
    ctx_size: int
    parallel: int
    unified: bool
    n_gpu_layers: str
    flash_attn: str


@cache
def variants() -> dict[str, Variant]:
    """By name."""
    text = files("planner.engines.llama_cpp.tables").joinpath("variants.csv").read_text("utf-8")
    return {
        row["name"]: Variant(
            name=row["name"],
            title=row["title"],
            n_batch=int(row["n_batch"]),
            n_ubatch=int(row["n_ubatch"]),
            ctx_size=int(row["ctx_size"]),
            parallel=int(row["parallel"]),
            unified=row["unified"] == "true",
            n_gpu_layers=row["n_gpu_layers"],
            flash_attn=row["flash_attn"],
        )
        for row in csv.DictReader(text.splitlines())
    }
