"""Plain YAML scalars as YAML 1.1 reads them."""

from __future__ import annotations

import re
from typing import Any, Final

_BOOLEANS: Final = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}


_NULLS: Final = ("", "~", "null", "Null", "NULL")


_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*|[1-9][0-9_]*(?::[0-5]?[0-9])+)")


_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*|\.inf|\.Inf|\.INF)")


def scalar(text: str) -> Any:
    """A plain scalar as YAML 1.1 reads it; dates stay text."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    first = text[0]
    if (first.isdecimal() or first in "+-.") and len(text) < 64:
        if _INTEGER.fullmatch(text):
            return _integer(text.replace("_", ""))
        if _FLOAT.fullmatch(text):
            bare = text.replace("_", "").lower().replace(".inf", "inf")
            return float(bare)
    return text


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits == "0":
        return 0
    if digits.startswith("0b"):
        return sign * int(digits[2:] or "0", 2)
    if digits.startswith("0x"):
        return sign * int(digits[2:] or "0", 16)
    if ":" in digits:
        total = 0
        for part in digits.split(":"):
            total = total * 60 + int(part)
        return sign * total
    return sign * int(digits, 8 if digits.startswith("0") else 10)
