"""Options of SGLang that are no input of a plan, by release: what they take and whether memory depends on them.

Source: SGLang server_args.py add_cli_args of 0.4.1 to 0.5.13, arg_groups/fields of 0.5.14 to 0.5.23.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from planner.contract.parser import Takes, dashed
from planner.engines.sglang.tables.releases import Release, covers
from planner.errors import UsageError


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


def check_release(words: Iterable[str], release: Release, version: str) -> None:
    """Options that were passed through are ones of this release.

    Raises:
        UsageError: SGLang has that option, but not in this release; names the nearest it has.
    """
    for word in words:
        row = _flags().get(word.partition("=")[0]) if word.startswith("--") else None
        if row is not None and not covers(row, release):
            own = [name for name, other in _flags().items() if covers(other, release)]
            near = difflib.get_close_matches(row["flag"], own, n=1)
            seen = f"seen from {row['first_version'] or 'the first'} to {row['last_version'] or 'the newest'}"
            hint = f"; nearest: {near[0]}" if near else ""
            raise UsageError(f"SGLang {version} has no {row['flag']} ({seen}){hint}", field=row["flag"])
