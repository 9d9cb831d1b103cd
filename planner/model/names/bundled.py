"""The configs that come with the package, by Hub id."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

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
def _lowered() -> Mapping[str, str]:
    return {name.lower(): name for name in bundled_names()}


@cache
def by_last_part() -> Mapping[str, tuple[str, ...]]:
    """Last part of the name, folded -> every bundled name that ends so."""
    found: dict[str, tuple[str, ...]] = {}
    for name in bundled_names():
        key = fold(name.split("/", 1)[-1])
        found[key] = (*found.get(key, ()), name)
    return found


def find_exact(name: str) -> str | None:
    """The bundled Hub id of that spelling, in any case; the folder is listed only when the spelling is not exact."""
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
