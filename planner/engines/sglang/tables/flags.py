"""Options of SGLang that are no input of a plan, by release: what they take and whether memory depends on them.

Source: SGLang server_args.py add_cli_args of 0.4.1 to 0.5.13, arg_groups/fields of 0.5.14 to 0.5.23.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from planner.contract.parser import Takes, dashed


@cache
def _flags() -> dict[str, dict[str, str]]:
    text = files("planner.engines.sglang.tables").joinpath("flags.csv").read_text("utf-8")
    return {row["flag"]: row for row in csv.DictReader(text.splitlines())}


def option_takes(option: str) -> Takes | None:
    """What an option takes; None for what SGLang never had."""
    row = _flags().get(dashed(option))
    if row is None:
        return None
    return "switch" if row["takes"] == "switch" else "value"


def other_flags() -> Iterable[str]:
    """Every option that is no input."""
    return _flags()


def without_effect(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """(options that do not touch memory, options of which that is not known) among passed words."""
    plain: dict[str, None] = {}
    unclear: dict[str, None] = {}
    for word in words:
        name = word.partition("=")[0]
        row = _flags().get(name)
        if row is not None:
            (plain if row["memory"] == "none" else unclear)[name] = None
    return list(plain), list(unclear)
