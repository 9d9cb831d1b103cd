"""The configs that come with the package, by Hub id, and the names that share a bundled model's shape (siblings.csv).

A row of siblings.csv is a model whose config differs from a bundled one's in the keys of `sets` alone, with the reason
for saying so; it is found, exported and listed as a bundled model is.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from planner.model.sources.json_file import read_json_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """One row: a name, the bundled model whose config it has, what differs, and how that is known.

    Args:
        published: the number of elements that its maker publishes, where that was compared; None where it was not.
    """

    name: str
    base: str
    sets: Mapping[str, object]
    published: int | None
    evidence: str


_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.\-]*/[\w.\-]+")


def is_hub_id(text: str) -> bool:
    """Whether a repository on the Hub could have this name."""
    return _HUB_ID.fullmatch(text) is not None


@cache
def bundled_folder() -> Path:
    """Where the bundled configs are: inside the installed package, or beside it in a checkout."""
    installed = Path(str(files("planner"))) / "model_configs"
    return installed if installed.is_dir() else Path(str(files("planner"))).parent / "model_configs"


@cache
def bundled_names() -> dict[str, Path]:
    """Hub id -> file of every bundled config."""
    folder = bundled_folder()
    found = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    return {name.removesuffix(".json").replace("--", "/", 1): folder / name for name in found}


def bundled_file(name: str) -> Path:
    """The file of a bundled Hub id."""
    return bundled_folder() / f"{name.replace('/', '--', 1)}.json"


@cache
def siblings() -> Mapping[str, Sibling]:
    """Every row of siblings.csv by its name."""
    text = files("planner.model.names").joinpath("siblings.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        row["name"]: Sibling(
            name=row["name"],
            base=row["base"],
            sets=json.loads(row["sets"] or "{}"),
            published=int(row["published"]) if row["published"] else None,
            evidence=row["evidence"],
        )
        for row in rows
    }


@cache
def known_names() -> tuple[str, ...]:
    """Every bundled model and every sibling of one."""
    return (*bundled_names(), *(name for name in siblings() if name not in bundled_names()))


def bundled_config(name: str) -> dict[str, object]:
    """The config of a bundled model, or of a sibling: its base's with what differs.

    Raises:
        SourceError: the file cannot be read.
    """
    if bundled_file(name).is_file():
        return read_json_object(bundled_file(name))
    row = siblings()[name]
    values = read_json_object(bundled_file(row.base))
    values.pop("_source", None)
    lay_over(values, row.sets)
    return values


def lay_over(values: dict[str, object], sets: Mapping[str, object]) -> None:
    """Put keys over a config, in its text_config where that has the key, section into section."""
    inner = values.get("text_config")
    for key, value in sets.items():
        place = inner if isinstance(inner, dict) and key in inner and not isinstance(value, dict) else values
        own = place.get(key)
        if isinstance(value, dict) and isinstance(own, dict):
            place[key] = {**own, **value}
        else:
            place[key] = value


@cache
def _lowered() -> Mapping[str, str]:
    return {name.lower(): name for name in known_names()}


@cache
def by_last_part() -> Mapping[str, tuple[str, ...]]:
    """Last part of the name, folded -> every bundled or sibling name that ends so."""
    found: dict[str, tuple[str, ...]] = {}
    for name in known_names():
        key = fold(name.split("/", 1)[-1])
        found[key] = (*found.get(key, ()), name)
    return found


def find_exact(name: str) -> str | None:
    """The bundled (or sibling) Hub id of that spelling, in any case; the folder is listed only for another spelling."""
    if is_hub_id(name) and bundled_file(name).is_file():
        return name
    return _lowered().get(name.lower())


def fold(last_part: str) -> str:
    """The last part of a name without what makers write in several ways.

    Case, dashes or underscores, the maker's own name before it (Meta-Llama-3.1-8B, NVIDIA-Nemotron-3-Nano), -hf for
    "in transformers' layout", -bf16 for "not quantised".
    """
    text = last_part.lower().replace("_", "-")
    for maker in ("meta-llama-", "nvidia-nemotron-"):
        if text.startswith(maker):
            text = text.split("-", 1)[1]
    return text.removesuffix("-bf16").removesuffix("-hf")
