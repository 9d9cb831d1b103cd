"""Options of llama-server that are no input of a plan: what they take, and whether memory depends on them.

Source: llama.cpp v0.5.0 `common/arg.cpp`, read 2026-12.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from planner.contract.parser import Takes


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    text = files("planner.engines.llama_cpp.tables").joinpath("other_options.csv").read_text("utf-8")
    return {row["option"]: row for row in csv.DictReader(text.splitlines())}


@cache
def other_options() -> Mapping[str, Takes]:
    """What each takes."""
    return {name: "value" if row["takes"] == "value" else "switch" for name, row in _rows().items()}


def not_known(words: Iterable[str]) -> Iterator[str]:
    """Of the words of a command the options of which nobody knows whether memory depends on them."""
    for word in words:
        name = word.partition("=")[0]
        row = _rows().get(name)
        if row is not None and row["memory"] != "none":
            yield name
