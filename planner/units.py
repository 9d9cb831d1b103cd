"""Bytes as int: the one place that prints and parses sizes.

Everywhere else a size is an `int` number of bytes in a name that ends in `_bytes`.
"""

from __future__ import annotations

import re
from fractions import Fraction

from planner.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

_UNIT_BYTES = {
    "": 1,
    "b": 1,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": TIB,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_LARGEST = 1 << 62


def parse_size(text: str, *, option: str = "size") -> int:
    """Bytes in a size as people write it: "79.19GiB", "512 MiB", "80GB" (10^9), "24g" (2^30), "1024".

    Raises:
        UsageError: not a size, an unknown unit, or larger than 2^62 bytes.
    """
    text = str(text)  # a caller's 1024 is a size too
    match = _SIZE.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise UsageError(f"{option}: {text[:64]!r} is not a size; write it like 79.19GiB or 512MiB", field=option)
    number, unit = match.groups()
    scale = _UNIT_BYTES.get(unit.lower())
    if scale is None:
        raise UsageError(f"{option}: unknown unit {unit!r} in {text!r}; use GiB, MiB, GB or MB", field=option)
    size = round(Fraction(number.replace(",", "").replace("_", "")) * scale)
    if size > _LARGEST:
        raise UsageError(f"{option}: {text!r} is larger than any memory", field=option)
    return size


def gib(size_bytes: int) -> str:
    """The size in GiB with two decimals and no unit, for table columns: 16110936064 -> "15.00"."""
    return f"{size_bytes / GIB:.2f}"


def format_size(size_bytes: int) -> str:
    """The size with the binary unit a reader would choose: "15.00 GiB", "512.0 MiB", "656 B".

    Two decimals in GiB and above, one in MiB and KiB; bytes below 1 KiB are exact.
    """
    sign, magnitude = ("-", -size_bytes) if size_bytes < 0 else ("", size_bytes)
    if magnitude >= TIB:
        return f"{sign}{magnitude / TIB:.2f} TiB"
    if magnitude >= GIB:
        return f"{sign}{magnitude / GIB:.2f} GiB"
    if magnitude >= MIB:
        return f"{sign}{magnitude / MIB:.1f} MiB"
    if magnitude >= KIB:
        return f"{sign}{magnitude / KIB:.1f} KiB"
    return f"{sign}{magnitude} B"


def format_exact(size_bytes: int) -> str:
    """The size both ways, for arithmetic on paper: "131,072 B (128.0 KiB)"."""
    exact = f"{size_bytes:,} B"
    return exact if abs(size_bytes) < KIB else f"{exact} ({format_size(size_bytes)})"
