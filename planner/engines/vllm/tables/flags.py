"""vLLM's own command-line flags: which version has which, whether it takes a value, and what memory depends on it.

The table (`flags.csv`) was read from `engine/arg_utils.py` and `entrypoints/openai/cli_args.py` of 13 releases
between 0.6.6 and 0.33.0. An empty first or last version means it was there at that end. Its column `memory` says
whether a flag touches memory of the card, of the host, none (servers, logs, tokenizers, networks), or "unknown", where
nobody has looked; `flags_memory.csv` says what changes.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from planner.engines.vllm.tables.profile import parse_version
from planner.errors import UsageError

# Ours in another sense (the model's own draft layers), or said in words of its own.
_NOTED_INSTEAD = ("--swap-space", "--num-speculative-tokens")


_COLUMNS = ("flag", "takes", "first_seen", "last_seen", "memory")
# How a flag of each kind is noted, the gravest first.
_NOTED = {
    "card": "accepted but not planned, though memory may depend on it: ",
    "unknown": "accepted; not known whether memory depends on it: ",
    "host": "accepted but not planned, host memory depends on it: ",
    "none": "accepted, no effect on memory here: ",
}


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: "--api-key", takes "value" or "switch", the versions it was seen in, and the memory it touches."""

    name: str
    takes: str
    first_seen: str
    last_seen: str
    memory: str


@cache
def vllm_flags() -> dict[str, Flag]:
    """Every known flag by name."""
    text = files("planner.engines.vllm.tables").joinpath("flags.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["flag"]: Flag(*(row[name] for name in _COLUMNS)) for row in rows}


def read_other_flags(words: list[str], *, version: str, own: list[str]) -> tuple[str, ...]:
    """Notes about flags that are vLLM's but are no inputs here, by what memory depends on them.

    Args:
        words: the words of the command line that no option of ours took.
        own: our own options, for near-miss hints.

    Raises:
        UsageError: a flag that vLLM never had, or that this version does not have; names the nearest.
    """
    noted: dict[str, list[str]] = {kind: [] for kind in _NOTED}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, _, attached = word.partition("=")
        if word.startswith("-O"):
            # vLLM's short form of --optimization-level: -O3 or -O 3
            name, attached = "--optimization-level", word[2:]
        if not name.startswith("--"):
            raise UsageError(f"{word[:60]!r} is not an option; give one MODEL, then options", field=word[:60])
        flag = _find(name)
        if flag is None:
            hint = _nearest(name, [*vllm_flags(), *own])
            raise UsageError(f"no such option: {name[:60]}{hint}", field=name[:60])
        if not _has(flag, version):
            raise _not_in(flag, version, own)
        values = [attached] if attached else []
        if flag.takes == "value" and not attached:
            while index < len(words) and not words[index].startswith("--"):
                values.append(words[index])
                index += 1
        for value in values:
            _check_json(name, value)
        what = flags_with_memory().get(flag.name)
        noted[flag.memory].append(f"{name} ({what})" if what else name)
    return tuple(f"{_NOTED[kind]}{', '.join(names)}" for kind, names in noted.items() if names)


def _check_json(name: str, value: str) -> None:
    """A value that begins like JSON is JSON.

    Raises:
        UsageError: it is not; names the flag.
    """
    if not value.lstrip().startswith(("{", "[")):
        return
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{name} is {value[:60]!r}, which is not JSON: a bracket or a quote is missing", field=name
        ) from None


def check_versions(names: Iterable[str], version: str) -> None:
    """Flags that are our options too must be in this version; --swap-space is noted instead.

    Raises:
        UsageError: vLLM has that flag, but not in this version; names the nearest it has.
    """
    for name in names:
        flag = vllm_flags().get(name)
        if flag is not None and name not in _NOTED_INSTEAD and not _has(flag, version):
            raise _not_in(flag, version, [])


def _not_in(flag: Flag, version: str, own: list[str]) -> UsageError:
    seen = f"seen from {flag.first_seen or 'the first'} to {flag.last_seen or 'the newest'}"
    hint = _nearest(flag.name, [*(name for name, known in vllm_flags().items() if _has(known, version)), *own])
    return UsageError(f"vLLM {version} has no {flag.name} ({seen}){hint}", field=flag.name)


def _nearest(name: str, known: list[str]) -> str:
    """What was probably meant; the dashes that all flags begin with make none alike."""
    bare = {flag.lstrip("-"): flag for flag in known}
    near = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return f"; nearest: {bare[near[0]]}" if near else ""


@cache
def flags_with_memory() -> dict[str, str]:
    """Flags that are not planned here but can change memory of card or host, with what they change."""
    text = files("planner.engines.vllm.tables").joinpath("flags_memory.csv").read_text("utf-8")
    return {row["flag"]: row["what"] for row in csv.DictReader(text.splitlines())}


def _find(name: str) -> Flag | None:
    flags = vllm_flags()
    if name in flags:
        return flags[name]
    return flags.get(f"--{name[5:]}") if name.startswith("--no-") else None


def option_takes(name: str) -> Literal["value", "switch"] | None:
    """What an option of vLLM takes; None for what no release of it had."""
    if name.startswith("-O"):
        return "switch" if len(name) > 2 else "value"
    flag = _find(name)
    if flag is None:
        return None
    return "switch" if flag.takes == "switch" else "value"


def _has(flag: Flag, version: str) -> bool:
    asked = parse_version(version)
    if flag.first_seen and asked < parse_version(flag.first_seen):
        return False
    return not flag.last_seen or asked <= parse_version(flag.last_seen)


def version_has(name: str, version: str) -> bool:
    """Whether this version of vLLM has the flag."""
    flag = _find(name)
    return flag is not None and _has(flag, version)
