"""Reading JSON that strangers wrote: bounded size, depth and integers, one object, one line of complaint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from planner.errors import SourceError

LARGEST_CONFIG_BYTES: Final = 16 << 20
DEEPEST: Final = 64
# 64-bit integers have 19 digits; longer ones are no size and cost quadratic time to parse.
LONGEST_INTEGER: Final = 20
# A string without escapes as a whole (unterminated ones run to the end), or one bracket. No repeated group: the regex
# engine keeps some 100 bytes for every turn of one, which makes gigabytes of a string of nothing but escapes.
_STRING_OR_BRACKET: Final = re.compile(r'"[^"]*"?|[\[\]{}]')


def read_json_object(path: Path, *, max_bytes: int = LARGEST_CONFIG_BYTES) -> dict[str, object]:
    """The JSON object in a file.

    Args:
        max_bytes: larger files are refused unread.

    Raises:
        SourceError: no such file, not a readable regular file, too large, not UTF-8, not JSON, nested too deeply, an
            integer of more than 20 digits, or something other than an object; names the path.
    """
    try:
        if not path.exists():
            raise SourceError(f"{path}: no such file")
        if not path.is_file():
            raise SourceError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            text = file.read(max_bytes + 1)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(text) > max_bytes:
        raise SourceError(f"{path}: is larger than {max_bytes >> 20} MiB, which no config is")
    return parse_json_object(text, origin=str(path))


def parse_json_object(text: bytes, *, origin: str, unique_keys: bool = False) -> dict[str, object]:
    """The JSON object in a text.

    Args:
        origin: what the text is, for messages.
        unique_keys: JSON to the letter: an object that has a key twice, NaN and Infinity are refused. Otherwise the
            last of equal keys counts and these are floats, as Python's and the Hub's readers of configs have it
            (Nemotron-H publishes `time_step_limit: [0.0, Infinity]`); whoever uses such a value refuses it.

    Raises:
        SourceError: as `read_json_object`.
    """
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{origin}: is not UTF-8 text, so it is no JSON") from None
    if _depth(decoded) > DEEPEST:
        raise SourceError(f"{origin}: is nested more than {DEEPEST} levels deep")
    hook, constant = (_unique, _constant) if unique_keys else (None, _not_finite)
    try:
        value = json.loads(decoded, parse_int=_integer, parse_constant=constant, object_pairs_hook=hook)
    except ValueError as error:
        raise SourceError(f"{origin}: is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a bare value"
        raise SourceError(f"{origin}: holds {kind}; expected an object")
    return value


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside strings, without recursion."""
    deepest = depth = 0
    # Only backslashes and quotes can hide where a string ends. Outside strings JSON has no backslashes.
    plain = text.replace("\\\\", "").replace('\\"', "")
    for token in _STRING_OR_BRACKET.finditer(plain):
        character = token[0]
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > DEEPEST:
                return deepest
        elif character in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} stands twice in one object")
        found[key] = value
    return found


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _constant(text: str) -> object:
    raise ValueError(f"{text} is no number")


def _not_finite(text: str) -> object:
    return float(text.replace("Infinity", "inf"))
