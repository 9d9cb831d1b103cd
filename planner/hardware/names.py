"""What people type for a card, broken into words that can be compared.

"RTX 4090", "rtx-4090", "GeForce RTX4090 24GB" and the driver's "NVIDIA GeForce RTX 4090" all become the words
rtx, 4090 (and 24gb). Nothing here knows a card; the table of cards is `planner.hardware.gpus`.
"""

from __future__ import annotations

import re
from typing import Final

# Words that tell no two cards apart.
_NOISE: Final = frozenset(
    {
        "nvidia",
        "geforce",
        "tesla",
        "amd",
        "radeon",
        "instinct",
        "intel",
        "apple",
        "gpu",
        "graphics",
        "generation",
        "edition",
        "oam",
        "r",
        "tm",
        "with",
        "the",
    }
)

# Words that make another card of a name: "4080" is neither the Super nor the laptop part. A card whose id has one
# of these is meant only if it was typed. What is not here (sxm, pcie, blackwell, rtx) may be left out.
QUALIFIERS: Final = frozenset(
    {
        "ti",
        "super",
        "laptop",
        "d",
        "mod",
        "ada",
        "pro",
        "sff",
        "server",
        "maxq",
        "nvl",
        "quadro",
        "titan",
        "ultra",
        "max",
        "xt",
        "xtx",
        "3e",
        "nano",
        "nx",
        "agx",
    }
)

# Words that many cards share, so that alone they mean none.
GENERIC: Final = QUALIFIERS | frozenset(
    {"rtx", "gtx", "rx", "arc", "blackwell", "sxm", "pcie", "workstation", "hbm3", "hbm3e", "jetson"}
)

_SUFFIXES: Final = {
    "ti": ("ti",),
    "s": ("super",),
    "super": ("super",),
    "tis": ("ti", "super"),
    "d": ("d",),
    "m": ("laptop",),
    "xt": ("xt",),
    "xtx": ("xtx",),
    "gre": ("gre",),
}

_SEPARATORS: Final = re.compile(r"[^a-z0-9.]+")
_SIZE_WITH_SPACE: Final = re.compile(r"\b(\d+(?:\.\d+)?) ?(?:gib|gb|g)\b")
_SERIES_AND_NUMBER: Final = re.compile(r"(rtx|gtx|rx|geforce|radeon|tesla|nvidia)(\d.*)")
_NUMBER_AND_SUFFIX: Final = re.compile(r"(\d{3,4})([a-z]+)")
_SIZE: Final = re.compile(r"\d+(?:\.\d+)?gb")


def words(text: str) -> tuple[str, ...]:
    """The words of a card's name, in order: lower case, split where people join ("4090ti"), vendors left out."""
    spaced = _SEPARATORS.sub(" ", text.casefold()).replace("max q", "maxq")
    spaced = _SIZE_WITH_SPACE.sub(r"\1gb", spaced)
    result: list[str] = []
    for word in spaced.split():
        series = _SERIES_AND_NUMBER.fullmatch(word)
        if series is not None:
            result.append(series[1])
            word = series[2]
        number = _NUMBER_AND_SUFFIX.fullmatch(word)
        if number is not None and number[2] in _SUFFIXES:
            result.append(number[1])
            result.extend(_SUFFIXES[number[2]])
        elif re.fullmatch(r"sxm\d", word):
            result.append("sxm")
        elif word in ("mobile", "notebook"):
            result.append("laptop")
        else:
            result.append(word)
    return tuple(word for word in result if word not in _NOISE)


def is_size(word: str) -> bool:
    """Whether a word is a memory size: "80gb"."""
    return _SIZE.fullmatch(word) is not None


def squeezed(text: str) -> str:
    """The text without case and punctuation, for a quick test whether a word can occur in it at all."""
    return _SEPARATORS.sub("", text.casefold())
