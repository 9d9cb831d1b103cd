"""Values as people and programs write them: numbers, counts of tokens, sizes, switches, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from planner.errors import UsageError
from planner.units import GIB, MIB, parse_size

Reader = Callable[[str, str], Any]
"""A value from the text of an option and the option's spelling; raises UsageError."""

_ON: Final = ("true", "1", "yes", "on", "y", "t")
_OFF: Final = ("false", "0", "no", "off", "n", "f")
_WHOLE: Final = re.compile(r"[+-]?[0-9][0-9_]{0,17}", re.ASCII)
_TOKENS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG]?)", re.ASCII)
_SCALES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def shown(value: object) -> str:
    """A value for a message: at most forty characters."""
    text = repr(value)
    return text if len(text) <= 42 else f"{text[:40]}..."


def _complain(text: str, option: str, expected: str) -> UsageError:
    return UsageError(f"{option} is {shown(text)}; expected {expected}", field=field_of(option))


def field_of(option: str) -> str:
    """The field that an option's spelling names, for error objects."""
    return option.lstrip("-").replace("-", "_")


def read_switch(text: str, option: str) -> bool:
    """True or false in the words that argument parsers and YAML take."""
    lowered = text.strip().lower()
    if lowered in _ON or lowered in _OFF:
        return lowered in _ON
    raise _complain(text, option, "true or false")


def is_switch_word(text: str) -> bool:
    """Whether a word can only be the value of a switch before it."""
    return text.lower() in ("true", "false", "1", "0", "yes", "no", "on", "off")


def read_whole(text: str, option: str) -> int:
    """A whole number."""
    if not _WHOLE.fullmatch(text.strip()):
        raise _complain(text, option, "a whole number")
    return int(text)


def read_number(text: str, option: str) -> float:
    """A decimal number."""
    try:
        value = float(text)
    except ValueError:
        raise _complain(text, option, "a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise _complain(text, option, "a number")
    return value


def read_text(text: str, option: str) -> str:
    """The text as it stands."""
    return text


READERS: Final[dict[type, Reader]] = {bool: read_switch, int: read_whole, float: read_number, str: read_text}


def read_tokens(text: str, option: str) -> int:
    """A number of tokens: 8192, 8k (8,000) or 8K (8,192), as vLLM reads them; -1 and auto leave it to the engine.

    Source: vLLM `engine/arg_utils.py` human_readable_int.
    """
    stripped = text.strip()
    if stripped in ("-1", "auto"):
        return -1
    found = _TOKENS.fullmatch(stripped)
    if found is None or len(stripped) > 15:
        raise _complain(text, option, "a number of tokens such as 8192 or 32K")
    value = float(found[1]) * _SCALES[found[2]]
    if value != int(value):
        raise _complain(text, option, "a whole number of tokens")
    return int(value)


def read_memory(text: str, option: str) -> int:
    """Bytes of a size on a card; a bare number below 1 MiB is a unit forgotten."""
    size = parse_size(text, option=option)
    if 0 < size < MIB:
        raise UsageError(
            f"{option} {text.strip()[:20]} is {size} bytes; write the unit, such as {text.strip()[:20]}GiB",
            field=field_of(option),
        )
    return size


def read_bytes(text: str, option: str) -> int:
    """Bytes, with or without a unit."""
    return parse_size(text, option=option)


def read_gib(text: str, option: str) -> int:
    """Bytes of a plain number of GiB (`--swap-space 16`); a size with a unit is taken as it says."""
    try:
        value = float(text)
    except ValueError:
        return parse_size(text, option=option)
    if not 0 <= value <= 1 << 20:
        raise UsageError(f"{option} is {text[:40]}; expected GiB from 0", field=field_of(option))
    return round(value * GIB)


def write_gib(size_bytes: int) -> str:
    """The number of GiB that is read back as these bytes."""
    return f"{size_bytes / GIB:.12g}"


def read_object(text: str, option: str) -> dict[str, Any]:
    """A JSON object of at most a million characters.

    Raises:
        UsageError: not JSON, no object, or too deep to read.
    """
    try:
        value = json.loads(text) if len(text) <= 1 << 20 else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _complain(text, option, "a JSON object")
    return value
