"""Which model classes each version of vLLM has of its own.

The table (`vllm_architectures.csv`) was read from `model_executor/models/registry.py` of 13 releases between 0.6.6
and 0.33.0. An empty first or last version means it was there at that end.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from planner.engines.vllm.tables.profile import parse_version


@cache
def _seen() -> dict[str, tuple[str, str]]:
    text = files("planner.engines.vllm.tables").joinpath("architectures.csv").read_text("utf-8")
    return {row["architecture"]: (row["first_seen"], row["last_seen"]) for row in csv.DictReader(text.splitlines())}


@cache
def architecture_note(architecture: str, version: str) -> str | None:
    """What to say when this version does not serve this class, as far as the releases read tell; else None."""
    if not architecture:  # a GGUF file does not name the class
        return None
    found = _seen().get(architecture)
    if found is None:
        return (
            f"no vLLM release read (0.6.6 to 0.33.0) has {architecture} of its own: the plan says what it would take,"
            " not that it starts"
        )
    asked, (first, last) = parse_version(version), found
    if first and asked < parse_version(first):
        return f"{architecture} was first seen in vLLM {first}: {version} may refuse it"
    if last and asked > parse_version(last):
        return f"{architecture} was last seen in vLLM {last}: {version} may refuse it"
    return None


def newest_release(architecture: str, default: str) -> str:
    """The newest release that is described and has this class; the default where nothing is known of it."""
    last = _seen().get(architecture, ("", ""))[1]
    return last or default
